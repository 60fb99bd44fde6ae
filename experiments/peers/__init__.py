"""The peers: everything from PyPI that can match points against boxes, behind one small interface.

`PEERS` lists them, this library among them. A peer is a class: making one builds its index, `ways` answer.
Where an answer per event is not what a peer returns, the regrouping is part of its time.

Left out: Postgres and tile38 are servers; percolators of text queries only have no ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from experiments.peers.counting import Counting
from experiments.peers.masks import BitMasks
from experiments.peers.own import PaperNodes, RTFilter
from experiments.peers.peer import Peer, Way
from experiments.peers.percolators import Mokaccino, Perq
from experiments.peers.scans import DuckDB, NumPy, Polars
from experiments.peers.trees import Boost, RtreeInserted, RtreeInsertedSmall, RtreePacked, STRtree
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
"""What is measured beside the peers in single experiments only."""
RTREES = tuple(name for name in PEERS if name.startswith("rtree"))
"""Names of the variants of `rtree`."""


def unable(peer: type[Peer], boxes: Bounds) -> str:
    """Why a peer cannot index these boxes: it is not installed, or its own reason; empty when it can."""
    if find_spec(peer.package) is None:
        return f"{peer.package} is not installed: pip install 'rtree-filter[peers]'"
    return peer.refuses(boxes)
