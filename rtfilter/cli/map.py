"""``rtfilter map``: the tree of the sites of a network."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from rtfilter.cli.connecting import WHO, add_server, asked
from rtfilter.cli.terminal import CommandError, say, show

TOGETHER: Final = 16
"""Sites that are asked at once."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show the tree of the sites of a network: ask one site, then all sites that it knows, as the same\n"
        f"user. A site needs the role site or admin.\n\n{WHO}"
    )
    parser.epilog = "example:\n  rtfilter map --url https://paris.example.org --token-file admin.token\n"
    add_server(parser)
    parser.add_argument("--json", action="store_true", help="print what the sites answer, by name")


def run(arguments: argparse.Namespace) -> int:
    first = asked(arguments, "/site", _known)
    found, silent = {first["site"]: first}, dict[str, str]()
    while new := {name: url for name, url in _sites(found).items() if name not in found.keys() | silent}:
        with ThreadPoolExecutor(TOGETHER) as pool:
            answers = pool.map(partial(_ask, arguments), new.values())
        for name, answer in zip(new, answers, strict=True):
            if isinstance(answer, str):
                silent[name] = answer
            else:
                found[name] = answer
    if arguments.json:
        show(json.dumps(found))
    else:
        for line in _tree(found):
            show(line)
    for name, why in sorted(silent.items()):
        say(f"{name} does not answer: {why}")
    return 0


def _ask(arguments: argparse.Namespace, url: str) -> dict[str, Any] | str:
    """Return what a site answers, or why it does not."""
    try:
        return asked(arguments, "/site", _known, url)
    except CommandError as error:
        return str(error)


def _known(found: Any) -> dict[str, Any]:
    """Return the answer of a site. Raises `LookupError` or `TypeError` if it is something else."""
    _sites({found["site"]: found})
    return {**found}


def _sites(found: dict[str, Any]) -> dict[str, str]:
    """Return the addresses of all sites that these know, by name."""
    known = {name: one["address"] for site in found.values() for name, one in site["sites"].items()}
    return known | {one["site"]: one["address"] for site in found.values() for one in site["neighbours"]}


def _tree(found: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each site: the root first, and each cluster below its parent."""
    clusters: dict[str, list[Any]] = {}
    for site in sorted(found.values(), key=lambda one: (one["site"] != one["designated"], one["site"])):
        clusters.setdefault(site["cluster"], []).append(site)

    def below(cluster: str, depth: int) -> Iterator[str]:
        sites = clusters.pop(cluster)
        for site in sites:
            line = "  " * depth + _line(site, len(sites) > 1)
            yield line if depth or not site["parent"] else f"{line}, below {site['parent']}"
        for child in [name for name, (one, *_) in sorted(clusters.items()) if one["parent"] == cluster]:
            if child in clusters:
                yield from below(child, depth + 1)

    tops = sorted(clusters, key=lambda name: (not clusters[name][0]["root"], name))
    for top in [*(name for name in tops if clusters[name][0]["parent"] not in clusters), *tops]:
        if top in clusters:  # with no way to the root, or in a circle while the tree changes
            yield from below(top, 0)


def _line(site: dict[str, Any], several: bool) -> str:
    parts = [f"{site['site']} ({site['cluster']})" if several else site["site"], site["address"]]
    parts += [f"{one['waiting']} wait for {one['site']}" for one in site["neighbours"] if one["waiting"]]
    if not site["root"] and not site["parent"]:
        parts.append("cut off")
    if not site["current"]:
        parts.append("catching up")
    return "  ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:])
