"""Verdicts, files of results, and pages of the documentation that are made of kept results.

A part of a page stands between ``<!-- NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import ResultError
from rtfilter.basics.text import plain
from rtfilter.replay.machine import describe, one_line
from rtfilter.replay.output import Row

REPORT = Path(__file__).resolve().parent / "report"
"""The results that are kept in the repository."""


def outcome(met: bool) -> str:
    """Return the verdict on a target, as text."""
    return "met" if met else "NOT MET"


def keep(
    path: Path | None,
    experiment: str,
    settings: Mapping[str, Any],
    rows: Sequence[Row],
    machine: Mapping[str, Any] | None = None,
    **more: object,
) -> None:
    """Write a result to a JSON file, one line per row.

    The file is replaced in one step. So if the program is stopped, the file before or the new one is there,
    but never a part of one.

    Parameters
    ----------
    path : Path or None
        Nothing is written without a path. Its folder is made if it is missing.
    experiment : str
        Name of the experiment.
    settings : mapping
        Settings of the experiment.
    rows : sequence of dict
    machine : mapping, optional
        The machine of the result, by default this one.
    **more
        Other keys of the file.

    Raises
    ------
    ResultError
        The file is one that is kept in the repository, and the tree has changes that are not committed.
    """
    if path is None:
        return
    made_on = describe() if machine is None else dict(machine)
    require_clean(path, made_on)
    head = {"experiment": experiment, "machine": made_on, "settings": dict(settings), **more}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text("\n".join(["{", *lines, ' "rows": [', body, " ]", "}", ""]))
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def require_clean(path: Path, made_on: Mapping[str, Any]) -> None:
    """Check that a file of the repository's results is made by a commit.

    Raises
    ------
    ResultError
        The tree of the machine's description has changes.
    """
    if REPORT in path.resolve().parents and str(made_on["revision"]).endswith("-dirty"):
        raise ResultError(f"{path} is kept, so it is made from a clean tree: commit, and measure again")


def content(path: Path) -> dict[str, Any]:
    """Read a file that `keep` wrote.

    Raises
    ------
    ResultError
        The file is damaged, or was not written by `keep`.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        if {"experiment", "machine", "settings", "rows"} <= found.keys():
            return found
    except (ValueError, AttributeError):
        pass
    raise ResultError(f"{path} is no result of an experiment: delete it or choose another --out")


def require_same(path: Path, kept: Mapping[str, Any], **asked: object) -> None:
    """Check that a kept result may be continued.

    Parameters
    ----------
    path : Path
        Its file, for the message.
    kept : mapping
        The content of the file.
    **asked
        Required values of keys in the file, for example ``experiment``, ``settings`` and ``machine``.

    Raises
    ------
    ResultError
        Something differs; the message says what.
    """
    differing = []
    for key, value in asked.items():
        old, new = kept[key], json.loads(json.dumps(value))
        if isinstance(old, dict) and old != new:
            parts = sorted(part for part in old.keys() | new.keys() if old.get(part) != new.get(part))
            differing.append(f"{key} ({', '.join(parts)})")
        elif old != new:
            differing.append(f"{key} ({old})")
    if differing:
        raise ResultError(
            f"{path} is of another {' and '.join(differing)}: delete it or choose another --out"
        )


def kept_rows(path: Path | None, experiment: str, settings: Mapping[str, Any]) -> list[Row]:
    """Return rows of an earlier run that this run continues; none if there is no file.

    Raises
    ------
    ResultError
        The file is damaged, or of another experiment, other settings or another machine.
    """
    if path is None or not path.exists():
        return []
    kept = content(path)
    require_same(path, kept, experiment=experiment, machine=describe(), settings=settings)
    rows: list[Row] = kept["rows"]
    return rows


Maker = Callable[[Sequence[Row]], str]
"""Makes what stands on a page of the rows of a result."""


def markdown(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Return rows as a table of Markdown; columns that are empty are left out."""
    used = {key: name for key, name in columns.items() if any(row.get(key) is not None for row in rows)}
    lines = [list(used.values()), ["---"] * len(used)]
    lines += [[_cell(key, row.get(key)) for key in used] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{100 * value:.0f} %" if key.endswith("_share") else plain(value, 3, ",")
    return f"{value:,}" if isinstance(value, int) else str(value)


def filled(page: str, kept: Mapping[str, Any], parts: Mapping[str, Maker]) -> str:
    """Return a page with new parts.

    Parameters
    ----------
    page : str
        Its text.
    kept : mapping
        A result, as `experiments.output.content` reads it.
    parts : mapping
        The content of each NAME; ``machine`` need not be among them.

    Raises
    ------
    ResultError
        The page has a NAME that is unknown.
    """

    def replaced(found: re.Match[str]) -> str:
        name = found[1]
        if name == "machine":
            made = f"Measured on {one_line(kept['machine'])}; revision {kept['machine']['revision']}."
        elif name in parts:
            made = parts[name](kept["rows"])
        else:
            raise ResultError(f"the page has an unknown table {name!r}")
        return f"<!-- {name} -->\n\n{made}\n\n<!-- end -->"

    return re.sub(r"<!-- ([a-z-]+) -->\n.*?<!-- end -->", replaced, page, flags=re.DOTALL)
