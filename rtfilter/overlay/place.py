"""The place of a broker in the network: everything that routing knows about it, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class BrokerPlace(NamedTuple):
    """The place of a broker in the network. It is immutable: a new place is a new value.

    Attributes
    ----------
    cluster, broker : str
        The names of its cluster and of the broker itself. A broker alone is a cluster of one.
    designated : str
        The designated broker of the cluster; empty while none is known.
    members : frozenset of str
        All live brokers of the cluster that are known, including itself.
    parent : str
        The cluster above; empty at the root, and while none is known.
    links : mapping of str to str
        The neighbouring clusters in the tree, including the parent, with their designated brokers. Only the
        designated broker has links.
    root : bool
        True if this cluster is the root. A cluster without a parent that is not the root is cut off.
    """

    cluster: str
    broker: str
    designated: str
    members: frozenset[str]
    parent: str = ""
    links: Mapping[str, str] = {}  # never written to
    root: bool = False

    @property
    def leads(self) -> bool:
        """True if the broker is the designated one."""
        return self.designated == self.broker
