"""Rows of numbers as text, and pictures in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: One line of a table: cells by name.
Row = dict[str, Any]


def save_picture(figure: Figure, path: Path, dpi: int) -> None:
    """Write a figure, in a folder that is made when it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Rows as aligned text.

    Parameters
    ----------
    rows : sequence of mappings
        A missing or None cell stays empty.
    columns : mapping of key to heading
        What to show, in order.
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
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
