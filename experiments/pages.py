"""Pages of the documentation with parts that are made of kept results.

A part stands between ``<!-- NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.errors import ResultError
from rtfilter.replay.machine import one_line
from rtfilter.replay.output import Row
from rtfilter.text import plain

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
