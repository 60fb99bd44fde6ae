"""Tables as text, and pictures as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtfilter.basics.text import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
"""A row of a table: its cells by name."""


def save_picture(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure to a file, and make the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Return rows as aligned text, numbers to the right.

    Parameters
    ----------
    rows : sequence of mappings
        A cell that is missing or None stays empty.
    columns : mapping of str to str
        The heading of each cell that is shown, in this order.
    """
    cells = [list(columns.values())] + [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    number = [any(isinstance(row.get(key), int | float) for row in rows) for key in columns]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, number, strict=True)
        ).rstrip()
        for line in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return plain(value, 3, ",")
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
