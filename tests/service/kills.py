"""A server that is killed at random moments, and a checker that knows all that it was told.

``python tests/service/kills.py 200`` kills it 200 times; a second number is the seed.
"""

import base64
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

USERS = ("ann", "bob", "eve")
GONE = (OSError, http.client.HTTPException, WebSocketException, EOFError)
"""What a client sees of a server that is killed."""


class Server:
    """The server as a process."""

    def __init__(self, folder):
        schema = folder / "given.json"
        schema.write_text('{"price": "float"}')
        command = ["serve", "--data", str(folder / "data"), "--schema", str(schema), "--port", "0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rtfilter", *command], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline()
        assert " at http://127.0.0.1:" in line, line
        self.port = int(line.rpartition(":")[2])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)

    def ended(self):
        self.process.wait()
        self.process.stdout.close()

    def ask(self, method, path, user, body=None, **headers):
        """Status and JSON of an answer."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            token = base64.b64encode(f"{user}:".encode()).decode()
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            link.request(method, path, body, {"Authorization": f"Basic {token}", **names})
            answer = link.getresponse()
            found = answer.read()
            return answer.status, json.loads(found) if found else None
        finally:
            link.close()


class Subscription:
    """What the checker knows of one: `since` and `until` are numbers of its steps."""

    def __init__(self, user, low, since):
        self.user, self.low, self.since, self.until, self.removed = user, low, since, None, False


class Checker:
    """Publishes, subscribes, acknowledges, and holds every delivery against what it knows."""

    def __init__(self, seed):
        self.random, self.step, self.links = random.Random(seed), 0, ExitStack()
        self.subscriptions, self.ghosts = {}, []  # ghosts: asked for, and never answered
        self.events = {}  # position: (step, price)
        self.unanswered = None  # a publish: (key, prices, step)
        self.acknowledged = {user: set() for user in USERS}
        self.perhaps = {user: set() for user in USERS}  # asked to be acknowledged, and never answered
        self.delivered = 0

    def meet(self, server):
        """A new server, or one that has come back."""
        self.server, self.sockets, self.numbers, self.links = server, {}, {}, ExitStack()
        if self.unanswered:
            self.publish(*self.unanswered)
        for user in USERS:
            link = connect(f"ws://127.0.0.1:{server.port}/session", max_size=None, close_timeout=0.1)
            self.sockets[user] = self.links.enter_context(link)
            self.numbers[user] = {}
            assert self.say(user, "CONNECT", user=user)["directive"] == "CONNECTED"
            self.say(user, "GET")
            self.say(user, "READY")

    def leave(self):
        with suppress(*GONE):
            self.links.close()

    def say(self, user, directive, /, **more):
        """Say it, and take what comes until the answer."""
        socket = self.sockets[user]
        socket.send(json.dumps({"directive": directive, **more}))
        while (message := json.loads(socket.recv(timeout=20)))["directive"] == "EVENT":
            self.take(user, message)
        assert message["directive"] != "ERROR", message
        return message

    def take(self, user, message):
        """A delivery over a session."""
        position, numbers = message["position"], self.numbers[user]
        assert position not in numbers.values(), f"{position} came twice over one connection"
        numbers[message["number"]] = position
        self.check(user, message)

    def check(self, user, message):
        """Whether a delivery may be."""
        position = message["position"]
        assert position not in self.acknowledged[user], f"{position} was acknowledged by {user}"
        assert position in self.events, f"{position} was never published"
        step, price = self.events[position]
        assert message["event"] == {"price": price}
        for id in message["subscriptions"]:
            if id not in self.subscriptions:  # then it is one whose answer was lost
                found = [one for one in self.ghosts if one.user == user and one.low <= price]
                assert found, f"{id} of {user} is nobody's"
                self.subscriptions[id] = found[0]
                self.ghosts.remove(found[0])
            one = self.subscriptions[id]
            assert one.user == user, f"{id} is of {one.user}, not of {user}"
            assert one.low <= price
            assert step > one.since
            assert not one.removed, f"{id} was removed"
            self.delivered += 1

    # -- steps -----------------------------------------------------------------------------------------------

    def go_on(self):
        """One random step."""
        self.step += 1
        user = self.random.choice(USERS)
        act = self.random.choices([self.publish, self.change, self.acknowledge], [6, 2, 3])[0]
        if act == self.publish:
            prices = [self.random.randrange(100) for _ in range(self.random.choice([1, 1, 5, 40]))]
            self.publish(f"step {self.step}", prices, self.step)
        else:
            act(user)

    def publish(self, key, prices, step):
        self.unanswered = key, prices, step
        body = "\n".join(json.dumps({"price": price}) for price in prices)
        headers = {"Content_Type": "application/x-ndjson", "Idempotency_Key": key}
        status, answer = self.server.ask("POST", "/filters/default/events", "carl", body, **headers)
        assert status == 202, answer
        assert len(answer["positions"]) == len(prices)
        assert not set(answer["positions"]) & set(self.events)
        self.events |= {at: (step, price) for at, price in zip(answer["positions"], prices, strict=True)}
        self.unanswered = None

    def change(self, user):
        mine = [id for id, one in self.subscriptions.items() if one.user == user and one.until is None]
        self.say(user, "STOP")
        if len(mine) > 3:
            id = self.random.choice(mine)
            self.subscriptions[id].until = self.step
            self.say(user, "UNSUBSCRIBE", subscription=id)
            self.subscriptions[id].removed = True
        else:
            one = Subscription(user, self.random.randrange(100), self.step)
            self.ghosts.append(one)
            answer = self.say(user, "SUBSCRIBE", where=f"price >= {one.low}")
            self.ghosts.remove(one)
            self.subscriptions[answer["subscription"]] = one
        self.say(user, "READY")

    def acknowledge(self, user):
        numbers = self.numbers[user]
        if numbers:
            upto = self.random.choice(list(numbers))
            taken = {at for number, at in numbers.items() if number <= upto}
            self.perhaps[user] |= taken
            self.say(user, "ACK", upto=upto)
            self.acknowledged[user] |= taken

    def finish(self):
        """All that is due is there, and nothing else."""
        for user in USERS:
            due = {
                (at, id)
                for at, (step, price) in self.events.items()
                for id, one in self.subscriptions.items()
                if one.user == user and one.until is None and one.since < step and one.low <= price
                if at not in self.perhaps[user]
            }
            end = time.monotonic() + 20
            while True:
                _, answer = self.server.ask("GET", "/deliveries?limit=1000", user)
                there = {(one["position"], id) for one in answer["deliveries"] for id in one["subscriptions"]}
                if due <= there or len(answer["deliveries"]) == 1000 or time.monotonic() > end:
                    break
                time.sleep(0.05)
            for one in answer["deliveries"]:
                self.check(user, one)
            if len(answer["deliveries"]) < 1000:
                assert due <= there, f"lost for {user}: {sorted(due - there)[:5]}"


def run(folder, kills, seed):
    """Kill so often; returns what was done."""
    checker, restarts = Checker(seed), 0
    while restarts < kills:
        server = Server(folder)
        timer = threading.Timer(checker.random.uniform(0.02, 1.5), server.kill)
        try:
            timer.start()
            with suppress(*GONE):
                checker.meet(server)
                while True:
                    checker.go_on()
        finally:
            timer.cancel()
            server.kill()
            server.ended()
            checker.leave()
        restarts += 1
    server = Server(folder)
    try:
        checker.meet(server)
        checker.finish()
    finally:
        checker.leave()
        server.kill()
        server.ended()
    return checker


if __name__ == "__main__":
    kills, seed = [*map(int, sys.argv[1:]), *(200, 0)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        done = run(Path(folder), kills, seed)
    print(f"{kills} kills, {len(done.events)} events, {done.delivered} deliveries")
