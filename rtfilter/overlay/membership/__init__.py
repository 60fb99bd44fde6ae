"""Brokers that find each other: clusters elect a designated broker, and form a tree that repairs itself.

`Membership` is the machine of one broker, `RendezvousPoint` the machine that knows the root. Both take
messages and the time, and return messages. The algorithms are those of Xue and Feng 2005, corrected where the
paper is wrong, and completed where it is silent.
"""

from rtfilter.overlay.membership.contacts import (
    RENDEZVOUS_POINT,
    TO_CLUSTER,
    TO_RENDEZVOUS,
    Audience,
    Contact,
    Dispatch,
    Neighbour,
    Recipient,
)
from rtfilter.overlay.membership.election import Heartbeat, Member, Registration
from rtfilter.overlay.membership.joining import JoinAnswer, JoinRequest, Ping, Pong
from rtfilter.overlay.membership.membership import Membership
from rtfilter.overlay.membership.membership_settings import MembershipSettings
from rtfilter.overlay.membership.multicast import GivenUp, Lacking, Missed, Numbered
from rtfilter.overlay.membership.recovery import LinkHeartbeat, Probe, Probed, Unlinked
from rtfilter.overlay.membership.rendezvous_point import (
    AskRoot,
    ClaimRoot,
    RendezvousPoint,
    RenewRoot,
    Root,
    RootIs,
)

MESSAGES = (
    Heartbeat,
    Registration,
    Numbered,
    Lacking,
    GivenUp,
    LinkHeartbeat,
    Unlinked,
    Probe,
    Probed,
    Ping,
    Pong,
    JoinRequest,
    JoinAnswer,
    AskRoot,
    ClaimRoot,
    RenewRoot,
    RootIs,
)
"""All messages between brokers, or to and from the rendezvous point; `Missed` stays inside a broker."""

__all__ = [
    "MESSAGES",
    "RENDEZVOUS_POINT",
    "TO_CLUSTER",
    "TO_RENDEZVOUS",
    "AskRoot",
    "Audience",
    "ClaimRoot",
    "Contact",
    "Dispatch",
    "GivenUp",
    "Heartbeat",
    "JoinAnswer",
    "JoinRequest",
    "Lacking",
    "LinkHeartbeat",
    "Member",
    "Membership",
    "MembershipSettings",
    "Missed",
    "Neighbour",
    "Numbered",
    "Ping",
    "Pong",
    "Probe",
    "Probed",
    "Recipient",
    "Registration",
    "RendezvousPoint",
    "RenewRoot",
    "Root",
    "RootIs",
    "Unlinked",
]
