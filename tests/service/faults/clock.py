"""A clock that is set forwards and back by hours, while the server runs and between two runs."""

import json
import random
from collections import Counter

from service.faults.load import until
from service.faults.world import serving
from service.kills.knowledge import FaultError

HOUR = 3600.0
EARLIEST, LATEST = -6 * HOUR, 12 * HOUR
"""By how much it is wrong: less than a day, after which deliveries are too old."""
EVENTS = "/filters/default/events"
ONE, LINES = {"Content_Type": "application/json"}, {"Content_Type": "application/x-ndjson"}


class Clock:
    """The clock of the server."""

    def __init__(self, folder):
        self.file, self._wrong = folder / "clock", 0.0
        self.set(0.0)

    def set(self, wrong):
        aside = self.file.with_suffix(".new")
        aside.write_text(str(wrong))
        aside.rename(self.file)
        self._wrong = wrong

    def jump(self, by):
        self.set(min(max(self._wrong + by, EARLIEST), LATEST))


class Client:
    """What is asked of the server, and what is to be delivered."""

    def __init__(self):
        self.server, self.places, self._serial = None, [], 0

    def ask(self, *given, **more):
        return self.server.ask(*given, **more)[1]

    def subscribe(self, user, **wish):
        path = "/filters/default/subscriptions"
        return self.ask("POST", path, user, json.dumps(wish), **ONE)["subscription"]

    def publish(self, count):
        self._serial += count
        lines = [json.dumps({"price": 1, "serial": self._serial - n}) for n in range(count)]
        self.places += self.ask("POST", EVENTS, "carl", "\n".join(lines), **LINES)["positions"]

    def stored(self, more=""):
        """All stored events."""
        found, after = [], 0
        while page := self.ask("GET", f"{EVENTS}?after={after}&limit=1000{more}", "ann")["events"]:
            found += page
            after = page[-1]["position"]
        return found

    def waiting(self, user):
        """What waits for a user: positions of events, and ids of subscriptions that have ended."""
        found = self.ask("GET", "/deliveries?limit=1000", user)["deliveries"]
        return (
            [one["position"] for one in found if "ended" not in one],
            [one["ended"] for one in found if one.get("reason") == "expired"],
        )


def run(folder, seed, steps=5):
    """Set the clock again and again; returns what was done."""
    chance, clock, client, counts = random.Random(seed), Clock(folder), Client(), Counter()
    begun = 0
    while begun < steps:
        with _serving(folder, clock) as client.server:
            if not begun:
                client.subscribe("ann", where="price >= 0")
            client.publish(2)
            for _ in range(chance.randrange(1, 4)):
                begun += 1
                by = chance.choice([-1, 1]) * chance.uniform(0.0, 6 * HOUR)
                clock.jump(by)
                counts["forwards" if by > 0 else "back"] += 1
                client.publish(chance.randrange(1, 4))
                chance.choice([_redelivered, _digested, _ended])(client, chance)
            _require_times(client, chance)
        clock.jump(chance.uniform(-6 * HOUR, 6 * HOUR))
        counts["restarts"] += 1
    with _serving(folder, clock) as client.server:
        _require_times(client, chance)
        _require_old_ones_go(client, clock)
    return counts


def _serving(folder, clock):
    return serving(folder, patient=False, new=True, CLOCK=str(clock.file), TRIM="0.2")


def _redelivered(client, chance):
    """What is not acknowledged is sent again."""
    user, sent = f"red{chance.random()}", Counter()
    client.subscribe(user, where="price >= 0")
    session = client.server.session(user, lambda message: sent.update([message["position"]]))
    session.say("READY")
    client.publish(1)
    until(lambda: session.listen(0.1) < 0 or sent[client.places[-1]] > 1, "it is sent again")
    session.close()


def _digested(client, chance):
    """A digest comes."""
    user, digests = f"dig{chance.random()}", []
    client.subscribe(user, where="price >= 0", digest=1)
    session = client.server.session(user, digests.append)
    session.say("READY")
    client.publish(2)
    until(lambda: session.listen(0.1) < 0 or digests, "a digest comes")
    session.close()
    found = [one["position"] for one in digests[0]["events"]]
    if found != client.places[-2:]:
        raise FaultError(f"{client.places[-2:]} were published, and a digest has {found}")


def _ended(client, chance):
    """A subscription ends when its time has passed, and no other one does."""
    user = f"end{chance.random()}"
    short, long = (client.subscribe(user, where="price >= 0", ttl=ttl) for ttl in (0.5, 30 * HOUR))
    until(lambda: client.waiting(user)[1] == [short], f"{short} ends")
    client.publish(1)
    until(lambda: client.places[-1] in client.waiting(user)[0], "the event is known")
    found = client.ask("GET", "/deliveries", user)["deliveries"][-1]
    if found["subscriptions"] != [long]:
        raise FaultError(f"{found} was published after the end of {short}, and before that of {long}")


def _require_times(client, chance):
    """Nothing is lost, moments ascend, and events are found by them."""
    until(lambda: set(client.places) <= set(client.waiting("ann")[0]), "all is delivered")
    stored = client.stored()
    if [one["position"] for one in stored] != client.places:
        raise FaultError(f"{client.places} were published, and stored are {stored}")
    times = [one["at"] for one in stored]
    if times != sorted(times):
        raise FaultError(f"the moments of events go back: {times}")
    since, before = sorted(chance.choice(times) + chance.uniform(-1.0, 1.0) for _ in "ab")
    found = client.stored(f"&since={since}&until={before}")
    if found != [one for one in stored if since <= one["at"] < before]:
        raise FaultError(f"of {times}, {found} are from {since} to {before}")


def _require_old_ones_go(client, clock):
    """After a day deliveries go, and after a week events; what comes then is delivered."""
    before, later = list(client.places), LATEST + 30 * HOUR
    clock.set(later)
    until(lambda: not client.waiting("ann")[0], "deliveries get too old")
    if [one["position"] for one in client.stored()] != before:
        raise FaultError("events are gone that are to be kept for a week")
    clock.set(later + 8 * 24 * HOUR)
    until(lambda: not client.stored(), "events get too old")
    for wrong in (0.0, later):
        clock.set(wrong)
        client.publish(1)
        until(lambda: client.places[-1] in client.waiting("ann")[0], "what comes then is delivered")
