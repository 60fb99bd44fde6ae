"""The whole service in process, with failing transactions and crashes, against the plain truth.

The truth is the log, replayed without index, batches, rows or marks: what a user has to get is what matches,
position by position, without what was acknowledged.
"""

import asyncio
import json
import random
from contextlib import suppress

import pytest
import sqlalchemy
from served import ADMIN, ANN, BOB, CARL, SCHEMA

from lengths import long_but
from rtfilter.basics.errors import RTFilterError
from rtfilter.definition import Definition
from rtfilter.service.access import Access
from rtfilter.service.backlog import BacklogLimits
from rtfilter.service.conversation import Conversation, Outbox
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import Wish
from rtfilter.service.service_errors import BusyError
from rtfilter.service.upkeep import Keeping
from rtfilter.store.database import engine
from rtfilter.store.log import Log
from rtfilter.store.log_tables import Kind
from rtfilter.store.user_store import Users

pytestmark = pytest.mark.slow

FILTERS = ("default", "other")
USERS = {"ann": ANN, "bob": BOB}


class FailingLog(Log):
    """Its next commits fail, before or after they are done."""

    def commit(self, requests, progress=None):
        failures = getattr(self, "failures", None)
        how = failures.pop() if failures else "not"
        head = self.head
        if how == "before":
            assert not self._in_doubt
            self._in_doubt = True
        else:
            placed = super().commit(requests, progress)
            if how == "not":
                return placed
            self.head, self._in_doubt = head, True  # the answer was lost
        raise sqlalchemy.exc.OperationalError("", {}, Exception())


class Told(Outbox):
    """Tells of each message as it is put in."""

    def __init__(self, told):
        super().__init__()
        self.told = told

    def put_nowait(self, message):
        super().put_nowait(message)
        if message is not None:
            self.told(json.loads(message))


class Truth:
    """What the log says, and what clients have said."""

    def __init__(self):
        self.last = 0
        self.subscriptions = {}  # id: (user, filter, least price)
        self.matches = {user: {} for user in USERS}  # position: ids
        self.ends = {user: {} for user in USERS}  # position: (id, whether it must be told)
        self.prices = {}
        self.acknowledged = {user: set() for user in USERS}
        self.perhaps = {user: set() for user in USERS}

    def read(self, log):
        for position, entry in log.entries(self.last):
            self.last = position
            body = json.loads(entry.body)
            id = entry.subscription or position
            if entry.kind == Kind.EVENT:
                self.prices[position] = body["price"]
                for id, (user, filter, least) in self.subscriptions.items():
                    if filter == entry.filter and body["price"] >= least:
                        self.matches[user].setdefault(position, set()).add(id)
            elif entry.kind == Kind.UNSUBSCRIBE:
                del self.subscriptions[id]
                self.ends[entry.user][position] = id, body["reason"] != "removed"
                for ids in self.matches[entry.user].values():
                    ids.discard(id)
            else:
                self.subscriptions[id] = entry.user, entry.filter, int(body["where"].split()[-1])

    def required(self, user):
        """What must be pending."""
        done = self.acknowledged[user] | self.perhaps[user]
        events = {at: sorted(ids) for at, ids in self.matches[user].items() if ids and at not in done}
        return events | {at: [id] for at, (id, told) in self.ends[user].items() if told and at not in done}

    def allowed(self, user, position):
        """The ids that a delivery may name."""
        if position in self.acknowledged[user]:
            return []
        if position in self.ends[user]:
            return [self.ends[user][position][0]]
        return sorted(self.matches[user].get(position, ()))


class Peer:
    """A client in a session."""

    def __init__(self, world, user):
        self.world, self.user = world, user
        self.session = Conversation(world.pipeline)
        self.session.outbox = Told(self.told)
        self.numbers = {}  # number: positions
        self.answers = []

    def told(self, message):
        if message["directive"] in ("ACK", "ERROR", "CONNECTED"):
            self.answers.append(message["directive"])
            return
        ones = message["events"] if message["directive"] == "DIGEST" else [message]
        assert len(self.numbers) + 1 == message["number"]
        self.numbers[message["number"]] = [one["position"] for one in ones]
        truth = self.world.truth
        for one in ones:
            if one["position"] in truth.acknowledged[self.user]:
                self.world.faults.append(f"again after its answer: {message}")
            if "event" in one:
                self.world.sent.append((self.user, one["position"], one["subscriptions"], one["event"]))

    async def say(self, directive, **more):
        await self.session.hear(json.dumps({"directive": directive, **more}))
        return self.answers[-1]

    def read(self, count):
        while count and self.session.outbox.qsize():
            count -= 1
            self.session.outbox.get_nowait()
            self.session.sent()


class World:
    def __init__(self, path, seed, bounds):
        self.path, self.bounds = path, bounds
        self.random, self.truth, self.now = random.Random(seed), Truth(), 0.0
        self.faults, self.sent, self.peers, self.published = [], [], [], {}
        self.caught_up, self.keys = set(), 0

    async def start(self):
        database = engine(f"sqlite:///{self.path}/log.sqlite")
        self.log = FailingLog(database)
        self.log.failures = []
        self.pipeline = Pipeline(
            self.log,
            self.path,
            Access(Users(database)),
            bounds=self.bounds,
            keeping=Keeping(changes=10**9),
            message=1000,
        )
        self.pipeline.deliver.clock = lambda: self.now
        await self.pipeline.start()
        for name in FILTERS:
            await self.pipeline.filters.add(ADMIN, name, Definition(SCHEMA), "symbol")

    async def crash(self):
        """End without a last progress; what is being written may be written or not."""
        pipeline, self.peers = self.pipeline, []
        self.caught_up.clear()
        for task in pipeline._tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*pipeline._tasks, return_exceptions=True)
        pipeline._store.close()
        pipeline._match.close()
        pipeline.asides.shutdown(stuck=False)
        self.truth.read(self.log)
        pipeline._log.close()

    async def step(self):
        draw = self.random
        if draw.random() < 0.15:
            self.log.failures.append(draw.choice(["before", "after"]))
        name = draw.choices(*zip(*STEPS.items(), strict=True))[0]
        with suppress(RTFilterError):
            async with asyncio.timeout(60):
                await getattr(self, name)()
        if draw.random() < 0.7:
            async with asyncio.timeout(60):
                await self.check()

    # -- steps -----------------------------------------------------------------------------------------------

    async def publish(self):
        filter = self.random.choice(FILTERS)
        rows = [
            {"price": self.random.randrange(10), "symbol": self.random.choice("AB")}
            for _ in range(self.random.choice([1, 1, 3, 30]))
        ]
        events = [json.dumps(row).encode() for row in rows]
        for place, row in zip(
            await self.pipeline.publishing.publish(CARL, filter, events), rows, strict=True
        ):
            self.published[place] = row["price"]

    async def publish_and_more(self):
        """Something else while the event is on its way."""
        other = self.random.choice([self.acknowledge, self.unsubscribe, self.replace, self.remove_filter])
        works = (self.publish(), other(), self.publish())
        await asyncio.gather(*works, return_exceptions=True)

    def wish(self):
        where = f"price >= {self.random.randrange(10)}"
        digest = self.random.choice([None, None, 60, 120])
        return Wish(where, digest=digest, order=self.random.choice([None, None, "key"]))

    async def subscribe(self):
        who, wishes = self.random.choice([ANN, BOB]), [self.wish() for _ in range(self.random.choice([1, 3]))]
        self.keys += 1
        await self.pipeline.subscriptions.subscribe_many(
            who, self.random.choice(FILTERS), wishes, f"k{self.keys}"
        )

    def one(self):
        return self.random.choice(list(self.pipeline._owners) or [0])

    async def replace(self):
        await self.pipeline.subscriptions.replace(ADMIN, self.one(), self.wish())

    async def unsubscribe(self):
        id = self.one()
        if id:
            owner = USERS[self.pipeline._owners[id].user]
            await self.pipeline.subscriptions.unsubscribe(self.random.choice([owner, ADMIN]), id)

    async def remove_filter(self):
        await self.pipeline.filters.remove(ADMIN, "other")
        await self.pipeline.filters.add(ADMIN, "other", Definition(SCHEMA), "symbol")

    async def acknowledge(self):
        user = self.random.choice(list(USERS))
        there = [one.position for one in self.pipeline.deliver.backlog(user).pending.values()]
        some = self.random.sample(there, self.random.randint(0, len(there)))
        await self.acknowledged(user, some, self.pipeline.deliveries.acknowledge(USERS[user], some))

    async def acknowledged(self, user, positions, work):
        self.truth.perhaps[user] |= set(positions)
        if await work != "ERROR":
            self.truth.acknowledged[user] |= set(positions)

    async def connect(self):
        peer = Peer(self, self.random.choice(list(USERS)))
        await peer.say("CONNECT", user=peer.user)
        self.peers.append(peer)
        if self.random.random() < 0.5:
            await peer.say("GET")
        await self.ready(peer)

    async def ready(self, peer):
        await peer.say("READY")
        if peer.session._caught_up:
            self.caught_up.add(peer.user)

    async def speak(self):
        if not self.peers:
            return
        peer = self.random.choice(self.peers)
        what = self.random.choice(["READY", "STOP", "GET", "CREDIT", "lost", "ACK", "ACK", "ACK"])
        if what == "READY":
            await self.ready(peer)
        elif what == "CREDIT":
            await peer.say(what, more=self.random.choice([0, 2, 1000]))
        elif what == "lost":
            peer.session.lost()
            self.peers.remove(peer)
        elif what == "ACK":
            upto = self.random.randint(0, len(peer.numbers))
            places = [at for number, ones in peer.numbers.items() if number <= upto for at in ones]
            await self.acknowledged(peer.user, places, peer.say("ACK", upto=upto))
        else:
            await peer.say(what)
        self.caught_up -= {user for user in USERS if not self.pipeline.deliver.receives(user)}

    async def read(self):
        for peer in self.peers:
            peer.read(self.random.choice([0, 3, 1000]))

    async def wait(self):
        self.now += self.random.choice([10, 100, 10_000])
        self.pipeline.deliver.tick(0)

    async def keep(self):
        await self.pipeline._upkeep.write_indexes()

    async def trim(self):
        await self.check()
        await self.pipeline._upkeep._trim(0.0)

    async def restart(self):
        await self.crash()
        await self.start()

    # -- what must be so -------------------------------------------------------------------------------------

    async def check(self):
        self.log.failures.clear()
        while True:
            with suppress(BusyError):  # a commit that was under way may have failed still
                await self.pipeline._store.flush()
                break
            await asyncio.sleep(0)
        truth, deliver = self.truth, self.pipeline.deliver
        truth.read(self.log)
        await self.pipeline.settled(truth.last)
        for place, price in self.published.items():
            assert truth.prices[place] == price
        assert set(self.pipeline._owners) == set(truth.subscriptions)
        for user in USERS:
            pending = {
                one.position: list(one.subscriptions) for one in deliver.backlog(user).pending.values()
            }
            required = truth.required(user)
            for at, ids in pending.items():
                assert ids == truth.allowed(user, at), at
            missing = required.keys() - pending.keys()
            assert len(pending) <= self.bounds.most
            for at in missing:  # only to make room for others
                assert (
                    sum(one > at - 40 for one in [*truth.matches[user], *truth.ends[user]])
                    >= self.bounds.most
                ), (user, at)
            if user in self.caught_up:
                due = (digest.positions for (whose, _), digest in deliver._digests.items() if whose == user)
                mine = (peer.session for peer in self.peers if peer.user == user)
                assert pending.keys() <= set().union(*due, *(one.unacknowledged() for one in mine))
            backlog = deliver.backlogs.get(user)
            if backlog is not None:
                assert len(backlog._beyond) <= 16 * (len(pending) + 1) + 70
                assert {*backlog._sent, *backlog._told} <= pending.keys()
        for user, position, ids, event in self.sent:
            assert truth.prices[position] == event["price"]
            for id in ids:
                assert self.owner(id) == user
        self.sent.clear()
        assert self.faults == []

    def owner(self, id):
        for user in USERS:
            if any(id == gone for gone, _ in self.truth.ends[user].values()):
                return user
        return self.truth.subscriptions[id][0]


SHORT = ((0, 10_000), (7, 12))
"""Seeds, and how many deliveries wait at most."""
FEW = (
    ("conversation.MOST_UNSENT", 4),
    ("conversation.FEW", 10),
    ("deliver.FEW", 10),
    ("deliver.FEWEST", 1),
)
STEPS = {
    "publish": 20,
    "publish_and_more": 8,
    "subscribe": 8,
    "replace": 6,
    "unsubscribe": 4,
    "remove_filter": 2,
    "acknowledge": 8,
    "connect": 6,
    "speak": 20,
    "read": 8,
    "wait": 4,
    "keep": 2,
    "trim": 2,
    "restart": 3,
}


@pytest.mark.parametrize("case", long_but([(s, most) for s in (0, 7, 10) for most in (10_000, 12)], SHORT))
def test_whatever_happens_nothing_is_lost_and_nothing_comes_again(tmp_path, monkeypatch, case):
    seed, most = case
    for name, value in FEW:
        monkeypatch.setattr(f"rtfilter.service.{name}", value)

    async def script():
        world = World(tmp_path, seed, BacklogLimits(most))
        await world.start()
        for _ in range(150):
            await world.step()
        await world.check()
        await world.restart()
        await world.check()
        for user in USERS:
            peer = Peer(world, user)
            await peer.say("CONNECT", user=user)
            await peer.say("GET")
            peer.read(10_000)
            got = sorted(at for ones in peer.numbers.values() for at in ones)
            assert got == sorted(
                one.position for one in world.pipeline.deliver.backlog(user).pending.values()
            )
        await world.crash()

    asyncio.run(script())
