"""The running tree: links, and the load of each broker; as text, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from rtfilter.basics.extras import needed
from rtfilter.overlay.membership import Contact
from rtfilter.overlay.running.broker_client import asked
from rtfilter.overlay.running.broker_frames import LinkError
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.client_messages import Description

_CLUSTER_WIDTH: Final = 2.6
_LEVEL_HEIGHT: Final = 1.7
LEGEND: Final = (
    "entries of the routing table, own clients' subscriptions, messages sent\n"
    "* is a designated broker; the wider a line, the more events its lower end has sent"
)


class Survey(NamedTuple):
    """The descriptions of all brokers that a broker's network knows."""

    brokers: dict[str, Description]
    """Descriptions of brokers that have answered, by name."""
    silent: dict[str, Contact]
    """Known brokers that do not answer, by name."""

    @property
    def clusters(self) -> dict[str, list[Contact]]:
        """The brokers of each cluster by name, including silent ones."""
        found: dict[str, list[Contact]] = {}
        everyone = {name: one.itself for name, one in self.brokers.items()} | self.silent
        for _, known in sorted(everyone.items()):
            found.setdefault(known.cluster, []).append(known)
        return found

    def designated(self, cluster: str) -> Description | None:
        """Return the description of a cluster's designated broker, if it has answered; else None."""
        for one in self.brokers.values():
            if one.itself.cluster == cluster and one.designated == one.itself.name:
                return one
        return None

    @property
    def root(self) -> Description | None:
        """The description of the root's designated broker, if it has answered; else None."""
        found = (one for one in self.brokers.values() if one.root and one.designated == one.itself.name)
        return next(found, None)

    @property
    def strategies(self) -> dict[str, str]:
        """The strategy of each broker that has answered, by name."""
        return {name: one.stats.get("router", {}).get("strategy", "") for name, one in self.brokers.items()}

    @property
    def routed(self) -> dict[str, list[str]]:
        """The brokers by strategy: several during a change, or if some are cut off."""
        found: dict[str, list[str]] = {}
        for name, strategy in sorted(self.strategies.items()):
            if strategy:
                found.setdefault(strategy, []).append(name)
        return found

    def tree(self) -> dict[str, list[str]]:
        """Return the clusters below each cluster; clusters without a parent are below the empty name.

        If clusters seem to be below each other, one of them is there, too: while the tree changes,
        descriptions are from different moments.
        """
        clusters = self.clusters
        above = dict.fromkeys(clusters, "")
        for cluster in clusters:
            one = self.designated(cluster)
            parent = one.parent if one is not None and one.parent in clusters else ""
            at = parent
            while at and at != cluster:
                at = above[at]
            above[cluster] = parent if not at else ""
        found: dict[str, list[str]] = {"": []}
        for cluster in clusters:
            found.setdefault(above[cluster], []).append(cluster)
        return found


async def survey(address: str, key: Key) -> Survey:
    """Describe the process at an address, then all that it knows. Raises `LinkError` without an answer."""
    found = Survey({}, {})
    first = await asked(address, key)
    waiting = _told(found, first)
    seen = set(waiting)
    while waiting:
        name, known = waiting.popitem()
        try:
            told = _told(found, await asked(known.address, key))
        except LinkError:
            found.silent[name] = known
            continue
        waiting |= {name: one for name, one in told.items() if name not in seen}
        seen |= told.keys()
    return found


def _told(found: Survey, one: Description) -> dict[str, Contact]:
    """Store the description of a broker; return further brokers to ask."""
    if one.designated or one.members:
        found.brokers[one.itself.name] = one
    known = {other.name: other for other in (*one.members, *one.links)}
    return {name: known[name] for name in known.keys() - found.brokers.keys() - found.silent.keys()}


def as_text(found: Survey) -> str:
    """Return the tree as indented lines, then the strategy; a star marks designated brokers."""
    lines, routed = list(_lines(found, found.tree(), "", 0)), found.routed
    if len(routed) > 1:
        lines.append("strategy: " + "; ".join(f"{name} at {', '.join(at)}" for name, at in routed.items()))
    else:
        lines += [f"strategy: {name}" for name in routed]
    return "\n".join(lines)


def _lines(found: Survey, tree: Mapping[str, list[str]], above: str, depth: int) -> Iterator[str]:
    for cluster in tree.get(above, []):
        one = found.designated(cluster)
        state = "" if depth or (one is not None and one.root) else "  (cut off)"
        yield f"{'  ' * depth}{cluster}{state}"
        for known in found.clusters[cluster]:
            broker = found.brokers.get(known.name)
            mark = " " if broker is None else "*" if broker.designated == known.name else "-"
            load = "does not answer" if broker is None else ", ".join(_load(broker.stats))
            yield f"{'  ' * depth}  {mark} {known.name} {known.address}: {load}"
        if depth < len(tree):
            yield from _lines(found, tree, cluster, depth + 1)


def _load(stats: Mapping[str, Any]) -> list[str]:
    """Return the load of a broker, as lines of text."""
    router, clients = stats.get("router", {}), stats.get("clients", {})
    return [
        "entries: {}".format(router.get("entries", 0)),
        "own: {}".format(clients.get("subscriptions", 0)),
        "sent: {}".format(sum(stats.get("sent", {}).values())),
    ]


def _events(stats: Mapping[str, Any]) -> int:
    return int(stats.get("sent", {}).get("Event", 0))


def draw(found: Survey, file: Path, title: str = "") -> None:
    """Draw the tree into a file; a wider line means more events from its lower broker.

    Raises `ModuleNotFoundError` without matplotlib.
    """
    with needed("replay", "a picture of the tree"):
        import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    tree = found.tree()
    places: dict[str, tuple[float, int]] = {}
    _lay_out(tree, "", -1, count(), places)
    width = max((x for x, _ in places.values()), default=0.0) + 1
    depth = max((y for _, y in places.values()), default=0) + 1
    figure, axes = plt.subplots(figsize=(1.2 + _CLUSTER_WIDTH * width, 0.9 + _LEVEL_HEIGHT * depth))
    most = max((_events(one.stats) for one in found.brokers.values()), default=0) or 1
    for above, below in tree.items():
        for cluster in below:
            if above:
                one = found.designated(cluster)
                events = 0 if one is None else _events(one.stats)
                (x, y), (u, v) = places[above], places[cluster]
                axes.plot([x, u], [-y, -v], color="#7d8ca3", linewidth=1 + 5 * events / most, zorder=1)
    for cluster, (x, y) in places.items():
        one = found.designated(cluster)
        root = one is not None and one.root
        lines = [cluster + (" (root)" if root else "")]
        for known in found.clusters[cluster]:
            lines += _box_lines(found, known)
        color = "#fdf1d6" if root else "#eaf0f8" if one is not None else "#f3dede"
        box = {"boxstyle": "round,pad=0.45", "facecolor": color, "edgecolor": "#46566e"}
        style: dict[str, Any] = {"fontsize": 8, "linespacing": 1.35, "zorder": 2, "bbox": box}
        axes.text(x, -y, "\n".join(lines), ha="center", va="center", **style)
    axes.set_xlim(-0.6, width - 0.4)
    axes.set_ylim(-depth + 0.4, 0.6)
    axes.axis("off")
    axes.set_title(title, fontsize=11)
    strategy = f"strategy: {', '.join(found.routed)}\n" if found.routed else ""
    figure.text(0.5, 0.01, strategy + LEGEND, ha="center", va="bottom", fontsize=7, color="#555555")
    figure.tight_layout()
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _box_lines(found: Survey, known: Contact) -> list[str]:
    one = found.brokers.get(known.name)
    if one is None:
        return [f"{known.name}: does not answer"]
    mark = " *" if one.designated == known.name and len(found.clusters[known.cluster]) > 1 else ""
    shown = [] if known.name == known.cluster and not mark else [f"{known.name}{mark}"]
    return [*shown, *_load(one.stats)]


def _lay_out(
    tree: Mapping[str, list[str]],
    cluster: str,
    depth: int,
    columns: Iterator[int],
    places: dict[str, tuple[float, int]],
) -> float:
    """Assign a column to each leaf, and to each other cluster the middle of those below; return it."""
    below = [] if depth > len(tree) + 1 else tree.get(cluster, [])
    xs = [_lay_out(tree, one, depth + 1, columns, places) for one in below]
    x = (xs[0] + xs[-1]) / 2 if xs else next(columns)
    if cluster:
        places[cluster] = x, depth
    return x
