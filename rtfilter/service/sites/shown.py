"""The state of a site, for people."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class NeighbourShown(Struct):
    """A site that this one exchanges events with."""

    site: str
    cluster: str
    address: str
    connected: Annotated[bool, Meta(description="True if a connection carries messages to it.")]
    waiting: Annotated[int, Meta(description="Deliveries that it has not acknowledged here.")]
    taking: Annotated[bool, Meta(description="True if it has a session that takes them.")]


class OriginShown(Struct):
    """A site whose events come here."""

    address: str
    position: Annotated[int, Meta(description="In its log; earlier events that are wanted are here.")]


class SiteShown(Struct):
    """The place of a site in the tree, its neighbours, and how far it has the events of others."""

    site: str
    cluster: str
    address: str
    strategy: str
    root: Annotated[bool, Meta(description="True if its cluster is the root.")]
    parent: Annotated[str, Meta(description="The cluster above its own one; empty where there is none.")]
    designated: Annotated[str, Meta(description="The site that links its cluster to others.")]
    root_cluster: Annotated[str, Meta(description="Empty while the way to it is unknown.")]
    neighbours: list[NeighbourShown]
    sites: Annotated[dict[str, OriginShown], Meta(description="The sites whose events come here.")]
    current: Annotated[bool, Meta(description="True if no event of another site is missed.")]
    subscriptions: Annotated[int, Meta(description="Subscriptions that other sites have here.")]
    log: Annotated[str, Meta(description="The id of its log; another one on a new disk.")]
    head: Annotated[int, Meta(description="The last position of its log.")]
    removed: Annotated[int, Meta(description="Events up to this position have been removed from it.")]

    @property
    def reached(self) -> bool:
        """True if its cluster is in the tree: the root, or below a parent."""
        return self.root or bool(self.parent)
