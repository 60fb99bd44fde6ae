"""The peers: all libraries on PyPI that can match points against boxes, behind one interface.

`PEERS` lists them, with this library among them. A peer is a class: its constructor builds the index, and its
`ways` answer questions. If a peer does not return one answer per event, the time to group its answers counts
as its time.

Postgres and tile38 are left out because they are servers, and percolators for text because they have no
ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from experiments.peers.own import BitMasks, Counting, PaperNodes, RTFilter
from experiments.peers.peer import Peer, Way
from experiments.peers.percolators import Mokaccino, Perq
from experiments.peers.scans import DuckDB, NumPy, Polars
from experiments.peers.trees import Boost, RtreeInserted, RtreeInsertedSmall, RtreePacked, STRtree
from rtfilter.basics.extras import install
from rtfilter.replay.workloads import Bounds

__all__ = ["OURS", "PEERS", "RTREES", "VARIANTS", "Peer", "Way", "unable"]

OURS = RTFilter.name
PEERS: Mapping[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        RTFilter,
        RtreeInsertedSmall,
        RtreeInserted,
        RtreePacked,
        Boost,
        STRtree,
        NumPy,
        DuckDB,
        Polars,
        Perq,
        Mokaccino,
        BitMasks,
        Counting,
    )
}
"""Peers by name, this library first."""
VARIANTS: Mapping[str, type[Peer]] = {PaperNodes.name: PaperNodes}
"""Other indexes that some experiments compare with, by name."""
RTREES = tuple(name for name in PEERS if name.startswith("rtree"))
"""Names of the peers that use `rtree`."""


def unable(peer: type[Peer], boxes: Bounds) -> str:
    """Return why a peer cannot index these boxes (it may not be installed); empty if it can."""
    if find_spec(peer.package) is None:
        return f"{peer.package} is not installed: {install('peers')}"
    return peer.refuses(boxes)
