"""The walk of a cluster that looks for a parent: from the root down, always to the nearest (CMTP, corrected).

After Xue and Feng 2005. The printed form pushes a node and then its children, but pops them in the same
order, does not define an empty stack, and lets a node join below itself. Here the marks are stored by name, a
walk ends when the root is exhausted, and the walking cluster is never a candidate; a cluster that is asked
refuses its own ancestors.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple


class Look(NamedTuple):
    """A question of the walk: how far are this cluster and its children? The answer is a mapping.

    Its keys are the cluster and its children, its values their distances, in any unit. Unreachable clusters
    are absent; without the cluster itself, its children are absent, too.
    """

    cluster: str


class WalkRequest(NamedTuple):
    """A question of the walk: does this cluster accept the walking one as a child? The answer is a bool."""

    cluster: str


Walk = Generator[Look | WalkRequest, Mapping[str, float] | bool, str]


def walk(root: str, avoided: Iterable[str] = ()) -> Walk:
    """Look for a parent, from the root down.

    The walk ends after at most one request to each cluster. It finds a parent exactly if an accepting cluster
    can be reached from the root over clusters that answer. This is not always the nearest of all, because the
    walk looks only at some.

    Parameters
    ----------
    root : str
        The root cluster.
    avoided : iterable of str
        Clusters that are neither asked nor walked through: the walking cluster, and a former parent that is
        silent.

    Yields
    ------
    Look or WalkRequest
        A question; send its answer into the generator.

    Returns
    -------
    str
        The parent; empty: no cluster accepts.
    """
    exhausted = set(avoided)  # neither these clusters nor those below them are of use
    refused: set[str] = set()
    above: list[str] = []
    current = root
    while True:
        distances = {} if current in exhausted else (yield Look(current))
        assert isinstance(distances, Mapping)
        near = [
            (distance, cluster)
            for cluster, distance in distances.items()
            if cluster not in (refused if cluster == current else exhausted)
        ]
        if not near:
            exhausted.add(current)
            if not above:
                return ""
            current = above.pop()
            continue
        nearest = min(near)[1]
        if nearest != current:
            above.append(current)
            current = nearest
        elif (yield WalkRequest(current)):
            return current
        else:
            refused.add(current)
