"""The figure: response times over offered load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.service import peers
from experiments.service.plan import FRAME, P99
from experiments.service.tables import series
from rtfilter.replay.output import Row, save_picture

PANELS: Final = (
    ("match: p99 of answers", ("match ",), "p99"),
    ("publish, one match an event: p99 of deliveries", ("publish ",), "delivery_p99"),
    ("peers: p99", ("match application/x-ndjson 100", "fastapi", "postgresql", "nats", "jetstream"), "p99"),
)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw a panel for `match`, for publishing and for peers, with a line for each way."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(10, 12), layout="constrained")
    for axes, (title, parts, name) in zip(picture.subplots(len(PANELS)), PANELS, strict=True):
        for number, some in enumerate(series(rows, *parts).values()):
            named = "delivery_p99" if some[-1]["server"] in (peers.NATS, peers.JETSTREAM) else name
            steps = [row for row in some if row.get(named) is not None]
            if not steps or (parts[1:] and steps[0]["frame"] > FRAME):
                continue
            first = steps[0]
            label = f"{first['door']}, frames of {first['frame']:,}"
            if parts[1:]:
                label = f"{first['server']}: {label}"
            x, y = [row["offered"] for row in steps], [row[named] for row in steps]
            axes.loglog(x, y, marker="osD^vP*X"[number % 8], label=label)
        axes.axhline(P99, color="grey", linestyle=":", linewidth=1)
        axes.set_title(title)
        axes.set_xlabel("offered load, events a second")
        axes.set_ylabel("ms from when due")
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:  # none where no step was sustained
            axes.legend(fontsize=8)
    save_picture(picture, path, 110)
