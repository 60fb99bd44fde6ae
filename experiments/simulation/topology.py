"""Networks to simulate: trees of clusters, alone or embedded in a network of routers.

The transit-stub network is like those of GT-ITM, with which Xue and Feng (2005) drew theirs: domains of
transit routers, and stubs of routers, each below one transit router. Clusters are at routers of stubs.
In random order, each joins the nearest one with room below it, similar to brokers that look for a parent.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any, Final, NamedTuple

import networkx as nx

from rtfilter.overlay.broker_names import BrokerPlace

LAN: Final = 0.0002
"""Seconds of a message within a cluster."""
FAR, NEAR = (0.020, 0.050), (0.005, 0.020)
"""Seconds of a link between transit domains, and within one: least and most."""
ACCESS, STUB = (0.002, 0.005), (0.0005, 0.002)
"""Seconds of a link between a stub and its transit router, and within a stub."""
DOMAINS, TRANSIT, STUBS, SIZE = 4, 5, 3, 8
"""Transit domains, routers of each, stubs of each such router, and routers of each stub: 500 routers."""


@dataclass(frozen=True)
class Topology:
    """A tree of clusters.

    Attributes
    ----------
    root : str
        The cluster above all others.
    parents : mapping of str to str
        The cluster above each other one.
    members : mapping of str to tuple of str
        The brokers of each cluster, the designated one first.
    latencies : mapping of (str, str) to float
        Seconds from each cluster to each other one, on the shortest way.
    routers : networkx.Graph or None
        The network under the tree.
    sites : mapping of str to int
        The router of each cluster.
    """

    root: str
    parents: Mapping[str, str]
    members: Mapping[str, tuple[str, ...]]
    latencies: Mapping[tuple[str, str], float]
    routers: nx.Graph[int] | None = None
    sites: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def cluster_of(self) -> dict[str, str]:
        """The cluster of each broker."""
        return {broker: cluster for cluster, own in self.members.items() for broker in own}

    @property
    def brokers(self) -> list[str]:
        """All brokers, cluster by cluster."""
        return list(self.cluster_of)

    @property
    def clusters(self) -> list[str]:
        """All clusters."""
        return list(self.members)

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """The clusters next to each one in the tree: the parent first, then children."""
        found: dict[str, list[str]] = {cluster: [] for cluster in self.members}
        for cluster, parent in self.parents.items():
            found[cluster].append(parent)
        for cluster, parent in self.parents.items():
            found[parent].append(cluster)
        return found

    def path(self, one: str, other: str) -> list[str]:
        """Return the clusters from one to another, both included."""
        up, down = self._to_root(one), self._to_root(other)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        return [*up, *reversed(down[:-1])]

    def _to_root(self, cluster: str) -> list[str]:
        way = [cluster]
        while way[-1] != self.root:
            way.append(self.parents[way[-1]])
        return way

    def place(self, broker: str) -> BrokerPlace:
        """Return the place of a broker while nothing fails."""
        cluster = self.cluster_of[broker]
        designated = self.members[cluster][0]
        links = {other: self.members[other][0] for other in self.neighbours[cluster]}
        return BrokerPlace(
            cluster, broker, designated, frozenset(self.members[cluster]), self.parents.get(cluster, ""),
            links if broker == designated else {}, cluster == self.root,
        )  # fmt: skip


def random_tree(rng: Random, clusters: int, brokers: int = 1, children: int = 8) -> Topology:
    """Return a tree in which each cluster is below a random earlier one; all links are access links.

    Parameters
    ----------
    rng : random.Random
    clusters, brokers : int
        Number of clusters, and of brokers in each.
    children : int
        Most child clusters of a cluster, as in `rtfilter.overlay.membership.MembershipSettings`.

    Raises
    ------
    ValueError
        No such tree exists.
    """
    _check(clusters, brokers, children)
    names = _names(clusters)
    tree: nx.Graph[str] = nx.Graph()
    tree.add_node(names[0])
    parents: dict[str, str] = {}
    below = Counter[str]()
    for before, name in enumerate(names[1:], 1):
        parents[name] = rng.choice([other for other in names[:before] if below[other] < children])
        below[parents[name]] += 1
        tree.add_edge(name, parents[name], weight=rng.uniform(*ACCESS))
    return Topology(
        names[0], parents, _members(names, brokers), _distances(tree, dict(zip(names, names, strict=True)))
    )


def transit_stub(rng: Random, links: int = 730) -> nx.Graph[int]:
    """Return a network of 500 routers; a link has seconds as ``weight``, a router has a ``kind``.

    Parameters
    ----------
    rng : random.Random
    links : int
        Links of the network. The first 499 connect it, the others are within random domains.

    Raises
    ------
    ValueError
        The network needs more links, or has no room for so many.
    """
    graph: nx.Graph[int] = nx.Graph()
    rooms: list[tuple[list[int], tuple[float, float]]] = []

    def domain(size: int, kind: str, seconds: tuple[float, float]) -> list[int]:
        own = list(range(len(graph), len(graph) + size))
        graph.add_nodes_from(own, kind=kind)
        for at, router in enumerate(own[1:], 1):
            graph.add_edge(router, rng.choice(own[:at]), weight=rng.uniform(*seconds))
        rooms.append((own, seconds))
        return own

    transit = [domain(TRANSIT, "transit", NEAR) for _ in range(DOMAINS)]
    for one, other in pairwise(transit):
        graph.add_edge(rng.choice(one), rng.choice(other), weight=rng.uniform(*FAR))
    for access in [router for own in transit for router in own]:
        for _ in range(STUBS):
            graph.add_edge(access, rng.choice(domain(SIZE, "stub", STUB)), weight=rng.uniform(*ACCESS))
    free = [
        (one, other, seconds)
        for own, seconds in rooms
        for at, one in enumerate(own)
        for other in own[:at]
        if not graph.has_edge(one, other)
    ]
    more = links - graph.number_of_edges()
    if not 0 <= more <= len(free):
        least = graph.number_of_edges()
        raise ValueError(f"the network has {least} to {least + len(free)} links, not {links}")
    for a, b, seconds in rng.sample(free, more):
        graph.add_edge(a, b, weight=rng.uniform(*seconds))
    return graph


def embedded(
    rng: Random, routers: nx.Graph[int], clusters: int = 100, brokers: int = 11, children: int = 8
) -> Topology:
    """Return a tree of clusters at random routers of stubs, each below the nearest earlier one with room.

    Parameters
    ----------
    rng : random.Random
    routers : networkx.Graph
        See `transit_stub`.
    clusters, brokers, children : int
        See `random_tree`.

    Raises
    ------
    ValueError
        No such tree exists, or there are fewer routers.
    """
    _check(clusters, brokers, children)
    names = _names(clusters)
    stubs = [router for router, kind in routers.nodes(data="kind") if kind == "stub"]
    if len(stubs) < clusters:
        raise ValueError(f"{clusters} clusters need as many routers of stubs, and there are {len(stubs)}")
    sites = dict(zip(names, rng.sample(stubs, clusters), strict=True))
    latencies = _distances(routers, sites)
    parents: dict[str, str] = {}
    below = Counter[str]()
    for before, name in enumerate(names[1:], 1):
        near = [(latencies[name, other], other) for other in names[:before] if below[other] < children]
        parents[name] = min(near)[1]
        below[parents[name]] += 1
    return Topology(names[0], parents, _members(names, brokers), latencies, routers, sites)


def _check(clusters: int, brokers: int, children: int) -> None:
    if clusters < 1 or brokers < 1:
        raise ValueError(f"a network has at least one cluster of one broker, not {clusters} of {brokers}")
    if clusters > 1 and children < 1:
        raise ValueError(f"{clusters} clusters are no tree with at most {children} children each; allow more")


def _names(clusters: int) -> list[str]:
    width = len(str(clusters - 1))
    return [f"c{number:0{width}}" for number in range(clusters)]


def _members(names: Sequence[str], brokers: int) -> dict[str, tuple[str, ...]]:
    width = len(str(brokers - 1))
    return {name: tuple(f"{name}b{number:0{width}}" for number in range(brokers)) for name in names}


def _distances(graph: nx.Graph[Any], sites: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the seconds of the shortest paths between all clusters, by their places."""
    found: dict[tuple[str, str], float] = {}
    for one, site in sites.items():
        seconds = nx.single_source_dijkstra_path_length(graph, site)
        found |= {(one, other): seconds[there] for other, there in sites.items() if other != one}
    return found


class NewClient(NamedTuple):
    """A client that looks for a broker.

    Attributes
    ----------
    cluster : str
        Nearest cluster to it.
    interest : hashable
        Its interest; clients with equal interests are alike.
    """

    cluster: str
    interest: Hashable


class Weights(NamedTuple):
    """The weights in a client's choice of a broker; a weight of 0 does not count.

    Attributes
    ----------
    interest : float
        Weight of the share of a cluster's clients with another interest.
    distance : float
        Weight of the distance, as a share of the longest distance between clusters.
    load : float
        Weight of the number of the broker's clients, as a multiple of the mean.
    """

    interest: float = 1.0
    distance: float = 1.0
    load: float = 1.0


def uniform(rng: Random, topology: Topology, count: int) -> list[str]:
    """Return a random broker for each client; with the same seed, a larger `count` keeps the first ones."""
    brokers = topology.brokers
    return [rng.choice(brokers) for _ in range(count)]


def placed(topology: Topology, wishes: Sequence[NewClient], weights: Weights) -> list[str]:
    """Return a broker for each client, one after the other: the broker with the least weighted sum."""
    longest = max(topology.latencies.values(), default=0.0) or 1.0
    even = len(wishes) / len(topology.brokers)
    loads: Counter[str] = Counter()
    wanted: dict[str, Counter[Hashable]] = defaultdict(Counter)
    found = []
    for wish in wishes:

        def cost(broker: str, wish: NewClient = wish) -> tuple[float, str]:
            cluster = topology.cluster_of[broker]
            others = wanted[cluster]
            unlike = 1 - others[wish.interest] / others.total() if others else 0.0
            way = 0.0 if cluster == wish.cluster else topology.latencies[wish.cluster, cluster]
            sums = (
                weights.interest * unlike
                + weights.distance * way / longest
                + weights.load * loads[broker] / even
            )
            return sums, broker

        broker = min(topology.brokers, key=cost)
        loads[broker] += 1
        wanted[topology.cluster_of[broker]][wish.interest] += 1
        found.append(broker)
    return found


def by_hash(types: Iterable[str], clusters: Collection[str]) -> dict[str, str]:
    """Return a rendezvous cluster for each type, by the highest hash; a new cluster changes few."""

    def digest(type: str, cluster: str) -> bytes:
        return hashlib.blake2b(f"{type}\0{cluster}".encode(), digest_size=8).digest()

    return {type: max(clusters, key=lambda cluster: digest(type, cluster)) for type in types}
