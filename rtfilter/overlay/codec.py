"""The messages of the machines as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.membership.multicast import Numbered

_encoder: Final = msgspec.msgpack.Encoder()


def encoded(message: BrokerMessage) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


class Codec:
    """A decoder of some message classes; by default of all in the modules loaded so far."""

    def __init__(self, *kinds: type[BrokerMessage]) -> None:
        self.kinds = kinds or tuple(_below(BrokerMessage))
        self._any: Any = reduce(or_, self.kinds)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self._any)

    def decoded(self, data: bytes) -> BrokerMessage:
        """Return the message. Raises `ValueError` if the data are no message."""
        try:
            found: BrokerMessage = self._decoder.decode(data)
            if isinstance(found, Numbered):
                found = msgspec.structs.replace(found, body=msgspec.convert(found.body, self._any))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"this is no message: {error}") from None
        return found


def _below(kind: type[BrokerMessage]) -> Iterator[type[BrokerMessage]]:
    """Yield the message classes of the package without subclasses."""
    for one in kind.__subclasses__():
        below = list(_below(one))
        if below:
            yield from below
        elif one.__module__.startswith("rtfilter."):
            yield one
