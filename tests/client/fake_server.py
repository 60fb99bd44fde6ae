"""A server that remembers everything, and loses connections where it is told to."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager, contextmanager, suppress

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from rtfilter.basics.session_states import Directive, State
from rtfilter.client.plain import Background
from rtfilter.service.conversation import after

LOSSES = ("before", "unanswered", "answered")
"""Of a directive: before it is done, after it is done and before its answer, after the answer."""


class RefusalError(Exception):
    def __init__(self, kind, error, **more):
        super().__init__(error)
        self.told = {"kind": kind, "error": error, **more}


class FakeServer:
    """One filter with the attribute ``price``; conditions are ``price > NUMBER``.

    Attributes
    ----------
    heard : list of str
        Directives, over all connections.
    lose : dict
        By the place of a directive in `heard`, counted from 0: one of `LOSSES`.
    lose_deliveries : set
        Counts of deliveries, from 1: the connection is lost after each.
    refuse : dict
        By name of directive: a `RefusalError`, once.
    """

    def __init__(self):
        self.log, self.keys, self.subscriptions, self.backlogs = [], {}, {}, {}
        self.heard, self.lose, self.lose_deliveries, self.refuse = [], {}, set(), {}
        self.connections = self.delivered = 0
        self.sessions = []
        self.silent = False
        self.given = {}  # position: times

    @asynccontextmanager
    async def running(self, port=0):
        async with serve(self._session, "127.0.0.1", port, close_timeout=0.1, max_size=10_000) as server:
            self.port = server.sockets[0].getsockname()[1]
            self.url = f"ws://127.0.0.1:{self.port}"
            yield self

    async def _session(self, socket):
        self.connections += 1
        session = _Session(self, socket)
        self.sessions.append(session)
        with suppress(ConnectionClosed):
            async for text in socket:
                if session.lost:  # what had arrived by then is not heard either
                    break
                if not self.silent:
                    await session.hear(json.loads(text))
        self.sessions.remove(session)

    def pending(self, user):
        return self.backlogs.setdefault(user, {})

    async def publish(self, *prices):
        """By somebody else."""
        places = self.store([{"price": price} for price in prices])
        await self.pump()
        return places

    def store(self, events):
        places = []
        for event in events:
            self.log.append(event)
            places.append(len(self.log))
            for id, (user, low) in self.subscriptions.items():
                if event["price"] > low:
                    self.pending(user).setdefault(len(self.log), []).append(id)
        return places

    async def pump(self):
        for session in list(self.sessions):
            await session.pump()

    def lose_all(self):
        for session in self.sessions:
            session.lose()

    async def resend(self):
        """As if nothing had arrived."""
        for session in list(self.sessions):
            for position in list(session.numbers.values()):
                if position in self.pending(session.user):
                    await session.deliver(position)


class _Session:
    def __init__(self, server, socket):
        self.server, self.socket = server, socket
        self.state, self.user, self.credit = State.PRE_CONNECTED, None, None
        self.numbers, self.last, self.getting = {}, 0, []
        self.lost = False

    def lose(self):
        self.lost = True
        self.socket.transport.abort()

    async def say(self, **message):
        with suppress(ConnectionClosed):
            await self.socket.send(json.dumps(message))

    async def hear(self, message):
        server = self.server
        place, name = len(server.heard), message["directive"]
        server.heard.append(name)
        loss = server.lose.get(place)
        if loss == "before":
            return self.lose()
        try:
            following = after(self.state, Directive(name))
            if name in server.refuse:
                raise server.refuse.pop(name)
            told = self.act(name, message)
        except Exception as error:
            told = getattr(error, "told", {"kind": "directive", "error": str(error)})
            return await self.say(directive="ERROR", tag=message["tag"], **told)
        self.state = following
        if loss == "unanswered":
            return self.lose()
        answer = "CONNECTED" if name == "CONNECT" else "ACK"
        await self.say(directive=answer, tag=message["tag"], **told)
        if loss == "answered":
            return self.lose()
        if name == "DISCONNECT":
            return await self.socket.close()
        await server.pump()

    def act(self, name, message):
        server = self.server
        match name:
            case "CONNECT":
                if message.get("password") == "wrong":
                    raise RefusalError("unauthenticated", "wrong name, password or token")
                server.credentials = {
                    name: message[name] for name in message if name not in ("directive", "tag")
                }
                self.user = message.get("user", "of a token")
                return {"connection": "c", "user": self.user, "roles": ["subscriber"]}
            case "SUBSCRIBE":
                low = message["where"].removeprefix("price > ")
                if not low.lstrip("-").isdecimal():
                    raise RefusalError("predicate", "this is no condition")
                if (key := message["key"]) not in server.keys:
                    server.keys[key] = len(server.subscriptions) + 1
                    server.subscriptions[server.keys[key]] = self.user, int(low)
                return {"subscription": server.keys[key]}
            case "UNSUBSCRIBE":
                if message["subscription"] not in server.subscriptions:
                    raise RefusalError("unknown", "there is no such subscription")
                del server.subscriptions[message["subscription"]]
            case "PUBLISH":
                events = message.get("events") or [message["event"]]
                if any("price" not in event for event in events):
                    raise RefusalError("event", "an event has a price", row=0)
                if (key := message["key"]) not in server.keys:
                    server.keys[key] = server.store(events)
                return {"positions": server.keys[key]}
            case "GET":
                self.getting = self.unsent()
                return {"pending": len(self.getting)}
            case "CREDIT":
                self.credit = (self.credit or 0) + message["more"]
            case "ACK":
                upto, others = message["upto"], message.get("numbers", [])
                assert 0 < max(upto, *others, 0) <= self.last
                for number in [number for number in self.numbers if number <= upto or number in others]:
                    server.pending(self.user).pop(self.numbers.pop(number), None)
        return {}

    def unsent(self):
        return [one for one in self.server.pending(self.user) if one not in self.numbers.values()]

    async def pump(self):
        while self.getting:
            if not await self.deliver(self.getting[0]):
                return
            self.getting.pop(0)
        while self.state is State.RECEIVING and (left := self.unsent()):
            if not await self.deliver(left[0]):
                return

    async def deliver(self, position):
        if self.credit == 0:
            return False
        self.credit = None if self.credit is None else self.credit - 1
        self.last += 1
        self.numbers[self.last] = position
        server = self.server
        times = server.given.get(position, 0)
        server.given[position] = times + 1
        server.delivered += 1
        await self.say(
            directive="EVENT",
            number=self.last,
            position=position,
            subscriptions=server.pending(self.user)[position],
            event=server.log[position - 1],
            filter="default",
            at=1.5,
            response=0.001,
            redelivered=times,
        )
        if server.delivered in server.lose_deliveries:
            self.lose()
        return True


@contextmanager
def served():
    """A server in a thread."""
    server, background, over = FakeServer(), Background(), asyncio.Event()
    there = threading.Event()

    async def serve():
        async with server.running():
            there.set()
            await over.wait()

    running = background.submit(serve())
    assert there.wait(60)
    server.call = background.call
    try:
        yield server
    finally:

        async def end():
            over.set()

        background.call(end())
        running.result(60)
        background.close()
