"""Keeps what a proof has found in `results`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def keep(name: str, found: Mapping[str, Any]) -> None:
    """Write what a proof has found as JSON, and its `rows`, if there are any, as a table beside it."""
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    if "rows" in found:
        (RESULTS / f"{name}.md").write_text(_page(found))


def kept(name: str) -> dict[str, Any]:
    """Return what was kept of a proof; nothing where it never ran."""
    file = RESULTS / f"{name}.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _page(found: Mapping[str, Any]) -> str:
    rows: Sequence[Mapping[str, Any]] = found["rows"]
    claim = found["claim"][0].upper() + found["claim"][1:]
    lines = [_line(row.values()) for row in rows]
    names = list(rows[0]) if rows else []
    return "\n".join([f"{claim}.", "", _line(names), _line("---" for _ in names), *lines, ""])


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
