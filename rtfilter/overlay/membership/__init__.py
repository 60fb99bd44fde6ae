"""Brokers that find each other: clusters elect a designated broker, and form a tree that repairs itself.

`Membership` is the machine of one broker, `RendezvousPoint` the machine that knows the root. Both take
messages and the time, and return messages. The algorithms are those of Xue and Feng 2005, corrected where the
paper is wrong, and completed where it is silent.
"""

from rtfilter.overlay.membership.contacts import Contact, MembershipSettings
from rtfilter.overlay.membership.membership import Membership
from rtfilter.overlay.membership.rendezvous_point import RendezvousPoint

__all__ = ["Contact", "Membership", "MembershipSettings", "RendezvousPoint"]
