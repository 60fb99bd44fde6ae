"""What a machine wants sent: it has no sockets itself."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rtfilter.overlay.names import Connection


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message", gc=False, omit_defaults=True):
    """What brokers, clients and the rendezvous point say to each other; each kind is a class of its own."""


class Send(NamedTuple):
    """A message on its way out.

    Attributes
    ----------
    to : Connection
    message : Message
    """

    to: Connection
    message: Message
