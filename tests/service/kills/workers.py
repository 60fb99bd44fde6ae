"""Publishers and subscribers. Each is a thread while a server lives, and goes on with the next server.

What was asked for, and not answered, stays in `_open` and is asked for again first.
"""

import json
import re
import time

from service.kills.knowledge import LONG, FaultError, Subscription, Version
from service.kills.process import BusyError, GoneError

LINES = {"Content_Type": "application/x-ndjson"}
ONE = {"Content_Type": "application/json"}


class Worker:
    """Works until the server is gone, or `deadline` has passed."""

    def __init__(self, name, known, random):
        self.name, self.known, self.random = name, known, random
        self._open = []
        self._session = None
        self.refused = 0

    def work(self, server, deadline=None):
        self.server = server
        resumed = False
        try:
            while deadline is None or time.monotonic() < deadline:
                try:
                    if not resumed:
                        self.resume()
                        resumed = True
                    self.step()
                except BusyError:
                    self.refused += 1
                    resumed = False  # what is open is asked for again, before anything else
                    time.sleep(0.05)
            if resumed:
                self.idle()
        except GoneError:
            pass
        finally:
            self.leave()

    def leave(self):
        if self._session:
            self._session.close()
            self._session = None

    def idle(self):
        """Nothing more is asked for."""

    def ask(self, method, path, body=None, allowed=(), **headers):
        return self.server.ask(method, path, self.name, body, allowed, **headers)

    def repeat(self):
        """Ask again for all that was not answered."""
        for again in list(self._open):
            again()
            self._open.remove(again)

    def surely(self, again):
        """Ask for it, now and with the next servers until it is answered."""
        self._open.append(again)
        again()
        self._open.remove(again)


class Publisher(Worker):
    """Publishes over HTTP and over a session, with a key or without."""

    def __init__(self, *given):
        super().__init__(*given)
        self._done = []

    def resume(self):
        self._session = self.server.session(self.name, self._nothing)
        self.repeat()

    def _nothing(self, message):
        raise FaultError(f"{self.name} has no subscriptions, and is sent {message}")

    def step(self):
        roll = self.random.random()
        if roll < 0.1 and (done := [one for one in self._done[-50:] if self._may_repeat(one)]):
            self._ask(self.random.choice(done))
            return
        prices = [self.random.randrange(100) for _ in range(self.random.choice([1, 1, 1, 5, 40]))]
        how = self.random.choice(["one", "lines", "session"]) if len(prices) == 1 else "lines"
        if len(prices) == 5:
            how = "session"
        key = f"{self.name} {len(self._done)} {self.random.random()}" if roll > 0.15 else None
        one = self.known.publishing(self.name, key, prices, how)
        if key is None:
            self._ask(one)
        else:
            self.surely(lambda: self._ask(one))
            self._done.append(one)
        time.sleep(self.random.choice([0, 0, 0.01, 0.03]))

    def _may_repeat(self, one):
        """Whether its key is surely kept."""
        return time.time() < one.at + self.known.age / 2

    def _ask(self, one):
        events = [{"price": price, "serial": serial} for serial, price in one.events.items()]
        if one.how == "session":
            key = {} if one.key is None else {"key": one.key}
            places = self._session.say("PUBLISH", events=events, **key)["positions"]
        else:
            headers = {} if one.key is None else {"Idempotency_Key": one.key}
            headers |= ONE if one.how == "one" else LINES
            body = "\n".join(map(json.dumps, events))
            _, answer = self.ask("POST", "/filters/default/events", body, **headers)
            places = answer["positions"]
        self.known.published(one, places)


class Subscriber(Worker):
    """Subscribes, replaces, unsubscribes, receives and acknowledges, over HTTP and over a session."""

    def __init__(self, *given):
        super().__init__(*given)
        self._ready = False
        self._begin()

    def _begin(self):
        """Nothing has been sent over this session."""
        self._numbers, self._last, self._sent = {}, 0, set()

    def resume(self):
        """Ask again, then receive."""
        self._ready = False
        self.repeat()
        left = set(self.known.pending[self.name])
        if left and self.random.random() < 0.3:
            self.surely(lambda: self._post(left, False))
        self._connect()

    def _connect(self):
        self.leave()
        self._begin()
        self._session = self.open_session(self._take)
        if self.random.random() < 0.8:
            self._session.say("GET")
        self._receive()

    def open_session(self, take):
        return self.server.session(self.name, take)

    def _receive(self):
        self._session.say("READY")
        self._ready = True

    def _stop(self):
        if self._ready:
            self._session.say("STOP")
            self._ready = False

    def _take(self, message):
        number = message["number"]
        if number != self._last + 1:
            raise FaultError(f"{message} comes after number {self._last}")
        parts = message["events"] if message["directive"] == "DIGEST" else [message]
        for one in parts:
            if one.get("redelivered") == 0 and one["position"] in self._sent:
                raise FaultError(f"{message} comes again as if it came first")
        self._last, self._numbers[number] = number, {one["position"] for one in parts}
        self._sent |= self._numbers[number]
        for one in parts:
            if ended := self.known.check(self.name, one):
                ended.told = True

    def step(self):
        steps = {
            self._listen: 6,
            self._acknowledge_numbers: 3,
            self._acknowledge_places: 2,
            self._subscribe: 2,
            self._subscribe_many: 1,
            self._replace: 2,
            self._unsubscribe: 2,
            self._pull: 1,
            self._connect: 0.5,
        }
        self.random.choices(list(steps), list(steps.values()))[0]()
        if not self._ready:
            self._receive()

    def idle(self):
        self._stop()

    def mine(self):
        return self.known.living(self.name)

    def _listen(self):
        self._session.listen(self.random.choice([0.01, 0.03, 0.1]))

    def _barrier(self):
        """Take all that the server has sent so far."""
        self._session.say("ACK", upto=0)

    # -- acknowledgements ------------------------------------------------------------------------------------

    def _acknowledge_numbers(self):
        if self._numbers:
            upto = self.random.choice(list(self._numbers))
            places = set().union(*(there for number, there in self._numbers.items() if number <= upto))
            self._acknowledging(places)
            self._session.say("ACK", upto=upto)
            self._acknowledged(places)

    def _acknowledge_places(self):
        pending = sorted(self.known.pending[self.name])
        if pending:
            places = self.random.sample(pending, self.random.randrange(len(pending)) + 1)
            self._acknowledging(places)
            self._post(places)

    def _acknowledging(self, places):
        """If the answer is lost, they are acknowledged by position."""
        self.known.perhaps[self.name].update(places)
        self._pending = lambda: self._post(places, False)
        self._open.append(self._pending)

    def _post(self, places, session=True):
        self.ask("POST", "/acknowledgements", json.dumps({"positions": list(places)}), **ONE)
        if session:
            self._barrier()
            self._acknowledged(places)
        else:
            self.known.acknowledge(self.name, places)

    def _acknowledged(self, places):
        self._open.remove(self._pending)
        self.known.acknowledge(self.name, places)

    # -- subscriptions ---------------------------------------------------------------------------------------

    def _version(self, ttls=(None, None, None, 0.3, 1.0, LONG)):
        low = self.random.randrange(100)
        high, ttl = low + self.random.randrange(1, 60), self.random.choice(ttls)
        return Version(low, high, ttl, self.manner())

    def manner(self):
        """How a subscription is to be delivered."""
        return {}

    def _new(self):
        return Subscription(self.name, [self._version()])

    def _key(self):
        return f"{self.name} {self.random.random()}"

    def _subscribe(self):
        if len(self.mine()) > 8:
            return
        one, key = self._new(), self._key()
        if self.random.random() < 0.5:
            self.surely(lambda: self._post_one(one, key))
            return
        self._stop()
        (version,) = one.versions
        self.known.asking(version)
        self._open.append(again := lambda: self._post_by_session(one, key))
        answer = self._session.say("SUBSCRIBE", **version.wish, key=key)
        self._open.remove(again)
        self.known.subscribed(one, answer["subscription"])

    def _post_by_session(self, one, key):
        """The same as was asked for over a session that was lost."""
        session = self.open_session(lambda message: None)
        try:
            answer = session.say("SUBSCRIBE", **one.versions[0].wish, key=key)
        finally:
            session.close()
        self.known.subscribed(one, answer["subscription"])

    def _post_one(self, one, key):
        (version,) = one.versions
        self.known.asking(version)
        path = "/filters/default/subscriptions"
        _, answer = self.ask("POST", path, json.dumps(version.wish), **ONE, Idempotency_Key=key)
        self.known.subscribed(one, answer["subscription"])

    def _subscribe_many(self):
        if len(self.mine()) <= 5:
            many, key = [self._new() for _ in range(self.random.randrange(1, 5))], self._key()
            self.surely(lambda: self._post_many(many, key))

    def _post_many(self, many, key):
        for one in many:
            self.known.asking(one.versions[0])
        wishes = [*(one.versions[0].wish for one in many), {"where": "no"}]
        body = "\n".join(map(json.dumps, wishes))
        _, answer = self.ask("POST", "/filters/default/subscriptions", body, **LINES, Idempotency_Key=key)
        *good, bad = answer["rows"]
        if len(good) != len(many) or "problem" not in bad:
            raise FaultError(f"{body} is answered with {answer}")
        for one, row in zip(many, good, strict=True):
            id = row.get("subscription")
            if one.versions[0].ttl is not None and "ended" in str(row.get("problem")):
                # The answer before was lost, and it had ended when it was asked for again.
                id = int(re.search(r"subscription (\d+) has ended", str(row["problem"]))[1])
            self.known.subscribed(one, id)

    def _replace(self):
        if mine := self.mine():
            one, version = self.random.choice(mine), self._version((None, None, None, None, 0.3))
            self.known.asking(version)
            with self.known.lock:
                one.versions.append(version)
            self.surely(lambda: self._put(one, version))

    def _put(self, one, version):
        ended = (404, 409) if one.brief else ()
        self.ask("PUT", f"/subscriptions/{one.id}", json.dumps(version.wish), ended, **ONE)
        self.known.answered(version)

    def _unsubscribe(self):
        mine = self.mine()
        if len(mine) > 3:
            one = self.random.choice(mine)
            one.gone_began = self.known.now()
            self.surely(lambda: self._delete(one))

    def _delete(self, one):
        if self._session and self._ready and self.random.random() < 0.5:
            self._stop()
            self._session.say("UNSUBSCRIBE", ("unknown",), subscription=one.id)
        else:
            self.ask("DELETE", f"/subscriptions/{one.id}", None, (404,))
            if self._session:
                self._barrier()
        one.gone = True

    # -- pulling ---------------------------------------------------------------------------------------------

    def _pull(self):
        ended = [self.known.check(self.name, message) for message in self.backlog(20)]
        try:
            self._barrier()  # what the session was sent before; where the server is gone, nothing more comes
        finally:
            for one in filter(None, ended):
                one.told = True

    def backlog(self, limit):
        """All deliveries that wait, page by page."""
        found, after = [], 0
        while True:
            _, answer = self.ask("GET", f"/deliveries?after={after}&limit={limit}")
            found += answer["deliveries"]
            if answer["next"] is None:
                return found
            after = found[-1]["position"]

    def finish(self, server):
        """All is there that must be, and nothing else."""
        self.server = server
        self._session = None
        messages = self.backlog(100)
        places = [one["position"] for one in messages]
        if places != sorted(set(places)):
            raise FaultError(f"pages of deliveries overlap: {places}")
        self.known.check_backlog(self.name, messages)
        left, after = set(), 0
        while True:
            _, answer = self.ask("GET", f"/subscriptions?after={after}&limit=10")
            left |= {one["subscription"] for one in answer["subscriptions"]}
            if len(answer["subscriptions"]) < 10:
                break
            after = max(left)
        if left != (expected := self.known.expected(self.name)):
            found = f"{self.name} has the subscriptions {sorted(left)}, and not {sorted(expected)}"
            wrong = [self.known.by_id.get(id) for id in left ^ expected]
            raise FaultError(f"{found}: {wrong}")
        for one in self.known.subscriptions[self.name]:
            last = one.versions[-1]
            if one.brief and not one.told and time.time() < last.first_at + last.ttl + self.known.age:
                raise FaultError(f"{self.name} was never told that {one} has ended")
