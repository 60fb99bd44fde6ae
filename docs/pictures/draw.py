"""Draws pictures of the pages: ``python docs/pictures/draw.py`` writes them beside itself."""

from __future__ import annotations

from html import escape
from pathlib import Path

from rtfilter.basics.session_states import TABLE, State

FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, GREY, BLUE, GREEN, ORANGE, WHITE = "#1c2b39", "#eef1f4", "#dbe9f6", "#dff0e0", "#fdebd3", "#ffffff"

#: Mean response times in ms, as in `experiments/report/demo.png`: by events in a burst, of `rtree` asked
#: event by event and of rtfilter with its adaptive plan.
MEASURED = {
    "100,000 subscriptions of 12 attributes": {16: (16, 0.48), 128: (148, 1.6), 512: (527, 4.5)},
    "20,000 alerts, real flights": {16: (9.6, 0.36), 128: (69, 1.5), 512: (265, 3.4)},
}


def text(
    x: float, y: float, words: str, size: int = 14, *, bold: bool = False, anchor: str = "middle"
) -> str:
    """One line of text; `y` is its baseline."""
    weight = " font-weight='bold'" if bold else ""
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{anchor}' fill='{INK}'{weight}>"
        f"{escape(words)}</text>"
    )


def box(x: float, y: float, width: float, height: float, title: str, *lines: str, fill: str = GREY) -> str:
    """A rectangle with a bold title and lines below it, all centred."""
    top = y + (height - 18 * len(lines)) / 2 + 5
    parts = [
        f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='6' fill='{fill}' "
        f"stroke='{INK}'/>",
        text(x + width / 2, top, title, 15, bold=True),
    ]
    parts += [text(x + width / 2, top + 18 * k, line, 13) for k, line in enumerate(lines, 1)]
    return "\n".join(parts)


def arrow(*points: tuple[float, float], dashed: bool = False) -> str:
    """A line through some points with a head at its end."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    dash = " stroke-dasharray='5 4'" if dashed else ""
    line = f"fill='none' stroke='{INK}' stroke-width='1.5'{dash} marker-end='url(#head)'"
    return f"<polyline points='{path}' {line}/>"


def picture(width: int, height: int, title: str, *parts: str) -> str:
    """An SVG of some parts, on white so that it can be read on a dark page too."""
    head = (
        "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='8' markerHeight='8' "
        f"orient='auto'><path d='M0,0 L10,5 L0,10 z' fill='{INK}'/></marker></defs>"
    )
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' role='img' {FONT}>\n<title>{escape(title)}</title>\n{head}\n"
        f"<rect width='{width}' height='{height}' fill='{WHITE}'/>\n{body}\n</svg>\n"
    )


def layers() -> str:
    """Which room may import which: what stands higher imports what stands lower."""
    rooms = [
        [("experiments/", ["benchmarks, the paper's evaluation, peers; from a checkout only"], ORANGE)],
        [("cli", ["the command rtfilter"], BLUE)],
        [
            ("service", ["the server: doors, sites"], BLUE),
            ("spark", ["frames, streams"], BLUE),
            ("nats", ["JetStream"], BLUE),
            ("replay", ["workloads"], BLUE),
        ],
        [
            ("client", ["of the server"], BLUE),
            ("overlay", ["brokers, as machines"], BLUE),
            ("store", ["SQLite or PostgreSQL"], BLUE),
        ],
        [
            ("asynchronous", ["AsyncFilter, for coroutines"], GREEN),
            ("tracking", ["Tracker: enter, leave"], GREEN),
            ("stage.py", ["the match step of others"], GREEN),
            ("definition.py", ["a filter as JSON"], GREEN),
        ],
        [("filter.py", ["EventFilter: what a program talks to"], GREEN)],
        [("matching", ["the way of a batch, streams, the lock of the index"], GREEN)],
        [("subscriptions", ["ids, predicates, boxes, expiry, metadata"], GREEN)],
        [("matchers", ["the port, and behind it the R*-tree, masks, counting, hashes"], GREEN)],
        [
            ("index", ["the R*-tree and its compiled kernels"], GREY),
            ("predicates", ["the meaning of conditions"], GREY),
            ("reading", ["files of events"], GREY),
        ],
        [
            ("snapshots", ["arrays on disk"], GREY),
            ("events", ["schema, reading, coordinates"], GREY),
        ],
        [("watch", ["Prometheus metrics"], GREY)],
        [
            ("scheduler", ["orders, groups; pure"], WHITE),
            ("adaptive", ["controllers; pure"], WHITE),
        ],
        [("basics", ["errors, results, types of arrays, small helpers"], WHITE)],
    ]
    left, right, gap = 70, 850, 10
    parts, y = [], 16
    for row in rooms:
        width = (right - left - gap * (len(row) - 1)) / len(row)
        height = 36 + 18 * max(len(lines) for _, lines, _ in row) - 6
        for k, (title, lines, fill) in enumerate(row):
            parts.append(box(left + k * (width + gap), y, width, height, title, *lines, fill=fill))
        y += height + gap
    parts.append(arrow((40, 20), (40, y - gap - 4)))
    parts.append(
        f"<g transform='translate(26 {y / 2:g}) rotate(-90)'>{text(0, 0, 'may import', 13)}</g>",
    )
    return picture(right + 16, y + 4, "The layers of rtfilter", *parts)


def road() -> str:
    """The road of a batch through `EventFilter.stream`."""
    width, gap, top, height = 150, 30, 60, 92
    x = [20 + k * (width + gap) for k in range(5)]
    steps = [
        box(x[0], top, width, height, "1  encode", "each event becomes", "a point", fill=GREY),
        box(
            x[1],
            top,
            width,
            height,
            "2  plan",
            "a level and a group",
            "size for a batch",
            "of this size",
            fill=WHITE,
        ),
        box(
            x[2],
            top,
            width,
            height,
            "3  estimate",
            "one shared search",
            "down to the level:",
            "work of each event",
            fill=GREEN,
        ),
        box(x[3], top, width, height, "4  order", "shortest first,", "cut into groups", fill=WHITE),
        box(
            x[4],
            top,
            width,
            height,
            "5  search",
            "group after group,",
            "from where the",
            "estimate stopped",
            fill=GREEN,
        ),
    ]
    middle = top + height / 2
    joins = [arrow((x[k] + width, middle), (x[k + 1], middle)) for k in range(4)]
    names = ["events", "adaptive", "matchers", "scheduler", "matchers"]
    rooms = [text(x[k] + width / 2, top - 12, f"({name})", 13) for k, name in enumerate(names)]
    last = x[4] + width / 2
    low = top + height + 56
    release = box(
        x[3] - 20,
        low,
        x[4] + width - x[3] + 20,
        74,
        "6  release",
        "an event leaves when its own group is done,",
        "with the seconds since its batch arrived",
        fill=ORANGE,
    )
    report = box(
        x[0],
        low,
        x[2] + width - x[0] - 30,
        74,
        "7  report",
        "the mean response time of the batch goes",
        "to the controller, which plans the next",
        fill=WHITE,
    )
    return picture(
        x[4] + width + 20,
        low + 90,
        "The road of a batch",
        text(20, 26, "a batch of events arrives", 14, anchor="start"),
        *rooms,
        *steps,
        *joins,
        release,
        report,
        arrow((last, top + height), (last, low)),
        arrow((x[3] - 20, low + 37), (x[2] + width - 30, low + 37)),
        arrow((x[1] + width / 2, low), (x[1] + width / 2, top + height), dashed=True),
    )


def response() -> str:
    """What `make demo` measured, as bars on a linear scale."""
    colours = {"an R*-tree asked event by event (rtree)": "#c8574b", "rtfilter": "#3b8f52"}
    parts = [
        text(
            20,
            24,
            "Mean response time of a burst of events; shorter is better",
            15,
            bold=True,
            anchor="start",
        )
    ]
    x = 20
    for name, colour in colours.items():
        parts.append(f"<rect x='{x}' y='37' width='12' height='12' fill='{colour}'/>")
        parts.append(text(x + 18, 48, name, 13, anchor="start"))
        x += 300
    for place, (title, sizes) in enumerate(MEASURED.items()):
        left, top = 20 + 425 * place, 82
        parts.append(text(left, top, title, 14, anchor="start"))
        for size, pair in sizes.items():
            parts.append(text(left + 78, top + 30, f"{size} events", 13, anchor="end"))
            for value, colour in zip(pair, colours.values(), strict=True):
                top += 20
                width = max(0.48 * value, 1)  # pixels; the longest label ends before the next panel
                parts.append(
                    f"<rect x='{left + 86}' y='{top - 12}' width='{width:.1f}' height='16' fill='{colour}'/>"
                )
                parts.append(text(left + 92 + width, top + 1, f"{value:g} ms", 13, anchor="start"))
            top += 10
    return picture(850, 240, "Mean response time of rtfilter and of rtree", *parts)


def session() -> str:
    """The life cycle of a session: `rtfilter.basics.session_states.TABLE`, each entry beside its arrow."""
    places = {
        State.PRE_CONNECTED: (20, 100),
        State.CONNECTED: (330, 100),
        State.RECEIVING: (660, 100),
        State.DISCONNECTED: (330, 280),
    }
    width, height = 170, 54
    parts = []
    for state, (x, y) in places.items():
        fill = {State.RECEIVING: GREEN, State.DISCONNECTED: WHITE}.get(state, GREY)
        parts.append(box(x, y, width, height, state, fill=fill))
    arrows: dict[tuple[State, State], list[str]] = {}
    for state, row in TABLE.items():
        for directive, following in row.items():
            arrows.setdefault((state, following), []).append(directive)
    for (state, following), directives in arrows.items():
        (x, y), (to_x, to_y) = places[state], places[following]
        if state is following:  # a loop above
            top = y - 34
            parts.append(arrow((x + 50, y), (x + 50, top), (x + width - 50, top), (x + width - 50, y)))
            rows = [", ".join(directives[first : first + 4]) for first in range(0, len(directives), 4)]
            for up, row in enumerate(reversed(rows)):
                parts.append(text(x + width / 2, top - 8 - 15 * up, row, 12))
        elif y == to_y:
            shift = 0 if (following, state) not in arrows else -11 if x < to_x else 11
            level = y + height / 2 + shift
            begin, end = (x + width, to_x) if x < to_x else (x, to_x + width)
            parts.append(arrow((begin, level), (end, level)))
            label = level - 7 if shift <= 0 else level + 17
            parts.append(text((begin + end) / 2, label, ", ".join(directives), 12))
        else:
            parts.append(arrow((x + width / 2, y + height), (to_x + width / 2, to_y)))
            middle = (y + height + to_y) / 2 + 4
            parts.append(text(x + width / 2 + 8, middle, ", ".join(directives), 12, anchor="start"))
    low = places[State.DISCONNECTED][1] + height / 2
    for state in (State.PRE_CONNECTED, State.RECEIVING):
        x, y = places[state]
        side = places[State.DISCONNECTED][0] + (0 if x < 300 else width)
        parts.append(arrow((x + width / 2, y + height), (x + width / 2, low), (side, low), dashed=True))
    x = places[State.CONNECTED][0] + 50
    parts.append(arrow((x, 100 + height), (x, 280), dashed=True))
    parts.append(text(20, 364, "dashed: the connection is lost, or closed by the server", 12, anchor="start"))
    parts.append(text(20, 382, "all else is answered with ERROR; the state stays", 12, anchor="start"))
    return picture(850, 396, "The life cycle of a session", *parts)


PICTURES = {"layers.svg": layers, "road.svg": road, "response.svg": response, "session.svg": session}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / name).write_text(draw(), encoding="utf-8")
        print(f"wrote {name}")
