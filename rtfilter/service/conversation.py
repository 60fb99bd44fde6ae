"""What a client says in a session, and what it is answered: the same for every door that has directives.

A message is a JSON object with a ``directive`` and what it needs; a ``tag``, where there is one, comes back
with the answer, which is CONNECTED, ACK or ERROR. Deliveries are messages with the directive EVENT. They are
numbered within a connection, and ``ACK`` with ``upto`` acknowledges all up to a number.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import uuid4

import msgspec

from rtfilter.errors import RTFilterError
from rtfilter.service.backlog import Delivery
from rtfilter.service.errors import DirectiveError
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.session import Directive, State, after

MOST_UNSENT: Final = 1000
"""Messages that wait to be sent; beyond it, deliveries stay in the backlog until they are asked for."""


class Conversation:
    """One session. Its door takes what is to be sent from `outbox`, in order, until it
    finds None, and calls `lost` in the end.

    Parameters
    ----------
    pipeline : Pipeline
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline, self.state, self._user = pipeline, State.PRE_CONNECTED, ""
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unacknowledged: dict[int, int] = {}  # positions, by number
        self._number = 0

    def send(self, delivery: Delivery) -> None:
        """Send a delivery, unless too much waits to be sent."""
        if self.outbox.qsize() >= MOST_UNSENT:
            return
        self._number += 1
        self._unacknowledged[self._number] = delivery.position
        self.outbox.put_nowait(
            msgspec.json.encode(
                {
                    "directive": "EVENT",
                    "number": self._number,
                    "position": delivery.position,
                    "subscriptions": delivery.subscriptions,
                    "event": msgspec.Raw(delivery.body),
                }
            )
        )

    async def hear(self, text: str | bytes) -> None:
        """Do what a message asks for, and answer it. Nothing is raised that a client could cause."""
        tag: Any = None
        try:
            message = msgspec.json.decode(text)
            if not isinstance(message, dict):
                raise DirectiveError('a message is a JSON object, such as {"directive": "READY"}')
            tag = message.get("tag")
            directive = _directive(message.get("directive"))
            following = after(self.state, directive)
            told = await self._act(directive, message)
        except (msgspec.DecodeError, RecursionError) as error:
            self._answer("ERROR", tag, error=f"this is not JSON: {error}")
        except (DirectiveError, RTFilterError, PermissionError) as error:
            self._answer("ERROR", tag, error=str(error))
        else:
            self.state = following
            self._answer("CONNECTED" if directive is Directive.CONNECT else "ACK", tag, **told)
            self._send_after(directive)
            if following is State.DISCONNECTED:
                self.outbox.put_nowait(None)

    async def _act(self, directive: Directive, message: dict[str, Any]) -> dict[str, Any]:
        """Do it; returns what the answer tells."""
        pipeline, user = self._pipeline, self._user
        match directive:
            case Directive.CONNECT:
                self._user = pipeline.authenticate(_text(message, "user"), str(message.get("password", "")))
                return {"connection": str(uuid4())}
            case Directive.SUBSCRIBE:
                return {"subscription": await pipeline.subscribe(user, message.get("where"))}
            case Directive.UNSUBSCRIBE:
                await pipeline.unsubscribe(user, _text(message, "subscription"))
            case Directive.ACK:
                upto = message.get("upto")
                if type(upto) is not int or upto > self._number:
                    raise DirectiveError('"upto" is the number of an EVENT of this connection')
                numbers = [number for number in self._unacknowledged if number <= upto]
                await pipeline.acknowledge(user, [self._unacknowledged[number] for number in numbers])
                for number in numbers:
                    del self._unacknowledged[number]
            case Directive.STOP:
                pipeline.deliver.end(user, self)
            case Directive.GET:
                return {"pending": len(self._unsent())}
        return {}

    def _send_after(self, directive: Directive) -> None:
        """Deliveries follow the answer."""
        if directive is Directive.READY:
            self._pipeline.deliver.begin(self._user, self)
        elif directive is Directive.GET:
            for delivery in self._unsent():
                self.send(delivery)

    def _unsent(self) -> list[Delivery]:
        """The backlog without what was sent on this connection."""
        sent = set(self._unacknowledged.values())
        return [one for one in self._pipeline.pending(self._user) if one.position not in sent]

    def _answer(self, directive: str, tag: Any, **told: Any) -> None:
        tagged = {} if tag is None else {"tag": tag}
        self.outbox.put_nowait(msgspec.json.encode({"directive": directive, **tagged, **told}))

    def lost(self) -> None:
        """The connection is gone. Subscriptions and backlog stay."""
        self._pipeline.deliver.end(self._user, self)
        self.state = State.DISCONNECTED


def _directive(name: object) -> Directive:
    try:
        return Directive(name)  # type: ignore[arg-type]
    except ValueError:
        raise DirectiveError(f'"directive" is one of {", ".join(Directive)}') from None


def _text(message: dict[str, Any], name: str) -> str:
    found = message.get(name)
    if not isinstance(found, str):
        raise DirectiveError(f'"{name}" is needed, as text')
    return found
