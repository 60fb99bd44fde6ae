"""The walk of a cluster that looks for a parent: from the root down, always to the nearest (CMTP, put right).

After Xue and Feng 2005. The printed form pushes a node and then its children, but takes them off in the same
order, and does not say what an empty stack means; it lets a node join below itself. Here the marks are kept
by name, a walk ends when the root is exhausted, and who asks is never a candidate; who is asked refuses its
own ancestors.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple


class Look(NamedTuple):
    """A question of the walk: how far are this cluster and its children? Answered by a mapping.

    Of the mapping, the keys are the cluster and its children, the values their distances, in any unit. Who
    cannot be reached is left out; without the cluster itself there are no children, either.
    """

    cluster: str


class Request(NamedTuple):
    """A question of the walk: does this cluster take who walks as a child? Answered by a truth value."""

    cluster: str


Walk = Generator[Look | Request, Mapping[str, float] | bool, str]


def walk(root: str, avoided: Iterable[str] = ()) -> Walk:
    """Look for a parent, from the root on.

    It ends, with at most one request to each cluster, and finds a parent exactly when one that accepts can be
    reached from the root over clusters that answer. Not always the nearest of all: only a part is looked at.

    Parameters
    ----------
    root : str
        The root cluster.
    avoided : iterable of str
        Clusters that are neither asked nor walked through: the one that walks, and a former parent that is
        silent.

    Yields
    ------
    Look or Request
        A question, whose answer is to be sent into the generator.

    Returns
    -------
    str
        The parent; empty: nobody takes it.
    """
    exhausted = set(avoided)  # neither they nor what is below them is of use
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
        elif (yield Request(current)):
            return current
        else:
            refused.add(current)
