"""The messages that a state machine sends; it has no sockets of its own."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rtfilter.overlay.broker_names import Connection


class BrokerMessage(msgspec.Struct, frozen=True, tag=True, tag_field="message", gc=False, omit_defaults=True):
    """The base of all messages between brokers, clients and the rendezvous point; each kind is a subclass."""


class Send(NamedTuple):
    """An outgoing message.

    Attributes
    ----------
    to : Connection
    message : BrokerMessage
    """

    to: Connection
    message: BrokerMessage
