"""The pages of the evaluation: first one page with ten claims, behind it the details.

All numbers of both pages come from the rows of the experiments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from experiments.paper import fig4b, times, verdicts
from experiments.paper.generators import BATCHES, TIMED, brief
from experiments.paper.papers import WANG, Paper
from experiments.paper.plans import shown
from experiments.paper.runner import Experiment, claim_lines
from experiments.paper.settings import SETTINGS
from experiments.paper.timing import compared
from experiments.paper.verdicts import Claim, Finding
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table

FIXED = (
    "Commit ebb646b1 fixed the limits of verdicts on 2026-11-22, after the first numbers (d029a6f2). "
    "2ba26b4b and e2c3ce7a (2026-11-26), and 81dbb656 and df96e766 (2026-11-27) judge some claims more "
    "strictly. Each result is later than what judges it."
)
"""The commits that fixed the limits of verdicts."""
SHOWN = ("paper", "modern")
"""Settings whose pictures are on the page with details."""
DETAILS = "details.md"
"""The second page."""
TEN = (
    ("fig4a", "the best level changes slowly with the index"),
    ("fig4b", "shortest first is clearly better than random order"),
    ("fig4b", "the larger the batch, the larger the gain"),
    ("fig4b", "the gain is nearly 50 % at most"),
    ("fig4b", "the estimate costs next to nothing"),
    ("fig4c", "the response by level is a valley, with the best level inside"),
    ("fig4c", "with a larger N, curves merge into that of the same events"),
    ("fig4d", "while it searches, the controller is much better than no batch search"),
    ("fig4d", "the controller is very near to the best possible of each batch"),
    ("counting", "with the paper's nodes, the R*-tree is faster by about four orders of magnitude"),
)
"""The claims of the paper that are on the first page."""
ASKED = (
    ("fig4b", "what is gained is gained by the order"),
    ("fig4d", "adapting is better than the best constant plan, known afterwards"),
    ("fig4d", "adapting is better than the middle level, never changed"),
)
"""The claims that the paper does not make, also on the first page."""
TWELVE = f"""\
Gain over random order in batches of {BATCHES[-1]}, means of three seeds, in work units; and in time, in
batches of {TIMED}, in the range of the paper."""
CODES = {
    verdicts.HOLDS: "H",
    verdicts.PARTLY: "p",
    verdicts.FAILS: "F",
    verdicts.OBSERVED: "o",
    verdicts.CANNOT: "?",
    verdicts.DOES_NOT_APPLY: "-",
}
"""Verdicts in the table by setting."""
TITLES = "Settings: " + ";\n".join(f"`{name}`: {setting.title}" for name, setting in SETTINGS.items()) + "."


class Result(NamedTuple):
    """The content of a file of numbers."""

    experiment: Experiment
    setting: str
    profile: str
    machine: dict[str, Any]
    rows: list[Row]

    @property
    def claims(self) -> list[Claim]:
        """Its claims with their verdicts."""
        return self.experiment.claims(self.rows)

    @property
    def picture(self) -> str:
        """The name of its picture."""
        return f"{self.experiment.name}-{self.setting}.png"

    @property
    def setting_title(self) -> str:
        """The title of the setting."""
        return self.experiment.settings[self.setting].title

    @property
    def revision(self) -> str:
        """The revision that measured it."""
        return f"revision {self.machine['revision']}"

    @property
    def command(self) -> str:
        """The command that measures it."""
        arguments = f"--setting {self.setting} --profile {self.profile}"
        return f"python -m experiments {self.experiment.name} {arguments}"


def first_page(found: Sequence[Result], pictures: str, reading: str) -> str:
    """Return the page with ten claims, as Markdown, with pictures from a folder and a text by hand."""
    own = {result.experiment.name: result for result in found if result.setting == SHOWN[0]}
    named = {(name, claim.claim): claim for name, result in own.items() for claim in result.claims}
    generators = own.get("generators")
    parts = [
        f"# {WANG.title}",
        WANG.introduction,
        f"## Ten claims ({SETTINGS[SHOWN[0]].title})",
        counted([named[key] for key in TEN if key in named]),
        "\n".join(_numbered(TEN, named, pictures, own)),
        "## What the paper does not ask",
        "\n".join(_numbered(ASKED, named, pictures, own)),
        "## Other subscriptions, other nodes",
        f"```text\n{by_setting(found)}\n```",
        *([f"## What \"12-d\" is\n\n```text\n{brief(generators.rows)}\n```", TWELVE] if generators else []),
        *([reading.strip()] if reading else []),
        f"{_profiles(found)} All claims, tables and pictures: [details]({DETAILS}).",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _profiles(found: Sequence[Result]) -> str:
    """Return the profile of most results, and what was run with another one."""
    names: dict[str, list[str]] = {}
    for result in found:
        names.setdefault(result.profile, []).append(f"{result.experiment.name} ({result.setting})")
    first, *others = sorted(names, key=lambda profile: -len(names[profile]))
    but = "".join(f"; `{profile}`: {', '.join(names[profile])}" for profile in others)
    revisions = "; ".join(dict.fromkeys(result.revision for result in found))
    return f"Profile `{first}`{but}; {revisions}."


def _numbered(
    keys: Sequence[tuple[str, str]], named: dict[tuple[str, str], Claim], pictures: str,
    own: dict[str, Result],
) -> Iterator[str]:  # fmt: skip
    for key in keys:
        if key not in named:
            continue
        claim = named[key]
        link = f"[{key[0]}]({pictures}/{own[key[0]].picture})"
        yield f"1. {claim.claim[0].upper()}{claim.claim[1:]}: {link}."
        for unit, finding in (("Units", claim.units), ("Time", claim.time)):
            yield f"    - {unit}: **{finding.verdict}**. {_brief(finding.ours)}"


def _brief(ours: str) -> str:
    """Return the finding without the parts for the page with details."""
    return f"{ours[0].upper()}{ours[1:].partition('; batch 1: ')[0]}."


def counted(claims: Sequence[Claim]) -> str:
    """Return the number of claims with each verdict, in a single line."""
    parts = []
    for unit, findings in (
        ("units", [claim.units for claim in claims]),
        ("time", [claim.time for claim in claims]),
    ):
        counted = Counter(finding.verdict for finding in findings)
        parts.append(f"in {unit} " + ", ".join(f"{name} {counted[name]}" for name in CODES if counted[name]))
    return f"Verdicts: {'; '.join(parts)}."


def by_setting(found: Sequence[Result]) -> str:
    """Return the gain of batch search on each setting, with its largest batch, as a table."""
    lines = []
    for result in found:
        if result.experiment.name != "fig4b":
            continue
        units, timed = fig4b.of(result.rows, "visits")[-1], fig4b.of(result.rows, "seconds")
        grouped = fig4b.is_grouped(result.rows)
        line: Row = {
            "setting": result.setting,
            "units": f"{shown(units['judged']['plan'], grouped)}: {times.interval(units['judged']['gain'])}",
        }
        if timed:
            for key, which in {"judged": "judged", "best": "best"}.items():
                own = compared(timed[-1], which)
                line[key] = f"{shown(own['plan'], grouped)}: {times.interval(own['gain'])}"
                line["longest"] = times.interval(own["longest"])
        lines.append(line)
    batches = [fig4b.of(result.rows, "seconds") for result in found if result.experiment.name == "fig4b"]
    largest = max((own[-1]["batch"] for own in batches if own), default=0)
    columns = {"setting": "best: gain", "units": "units", "judged": f"time, {largest} events"}
    return table(lines, columns | {"best": "all levels", "longest": "longest first"})


def details(found: Sequence[Result], pictures: str) -> str:
    """Return the page with all claims, tables and pictures, as Markdown."""
    machines = dict.fromkeys(machine.one_line(result.machine) for result in found)
    words = [{"word": word, "meaning": meaning} for word, meaning in verdicts.WORDS.items()]
    parts = [
        "# The paper's evaluation: details",
        f"Behind [the first page]({WANG.page}). " + "; ".join(machines) + ".",
        "## What words mean",
        f"The same in units and in time. A number is above a limit only if its whole interval is. {FIXED}",
        "```text\n" + table(words, {"word": "word", "meaning": "meaning"}) + "\n```",
        "## Verdicts by setting",
        TITLES,
        "First in units, then in time: H holds, p partly, F fails, o observed, ? cannot be judged, "
        "- does not apply.",
        _matrix(found),
    ]
    for result in found:
        parts.append(f"## {result.experiment.name}, {result.setting} ({result.profile}, {result.revision})")
        if result.setting in SHOWN:
            title = f"{result.experiment.title}, {SETTINGS[result.setting].title}"
            parts.append(f"![{title}]({pictures}/{result.picture})")
        if result.claims:
            parts.append("\n".join(line for claim in result.claims for line in claim_lines(claim)))
        parts.append(f"```text\n{result.experiment.text(result.rows)}\n```")
    return "\n\n".join(parts) + "\n"


def _matrix(found: Sequence[Result]) -> str:
    """Return the verdicts on each claim by setting: a numbered list of claims, and a table of codes."""
    settings = [name for name in SETTINGS if any(result.setting == name for result in found)]
    codes: dict[tuple[str, str], dict[str, str]] = {}
    for result in found:
        for claim in result.claims:
            code = f"{CODES[claim.units.verdict]} {CODES[claim.time.verdict]}"
            codes.setdefault((result.experiment.name, claim.claim), {})[result.setting] = code
    lines = [{"claim": f"{number}"} | own for number, own in enumerate(codes.values(), 1)]
    claims = "\n".join(f"{number}. {name}: {claim}" for number, (name, claim) in enumerate(codes, 1))
    grid = table(lines, {"claim": "claim"} | {name: name for name in settings})
    return f"{claims}\n\n```text\n{grid}\n```"


HEADS = ("claim", "the paper", "ours, counted", "ours, in time")


def claims_page(paper: Paper, found: Sequence[Result], pictures: str) -> str:
    """Return the page of a paper, as Markdown, with pictures from a folder."""
    machines = dict.fromkeys(machine.one_line(result.machine) for result in found)
    claims = [claim for result in found for claim in result.claims]
    parts = [
        f"# {paper.title}",
        paper.introduction,
        "## Claims",
        f"{counted(claims)} {FIXED}",
    ]
    for result in found:
        parts.append(f"`{result.command}` ({result.setting_title}; {result.revision}):")
        parts.append(_table(result.claims))
    for result in found:
        title = f"{result.experiment.title}, {result.setting_title}"
        parts += [
            f"## {title[0].upper()}{title[1:]}",
            f"![{title}]({pictures}/{result.picture})",
            f"```text\n{result.experiment.text(result.rows)}\n```",
        ]
    return "\n\n".join([*parts, "; ".join(machines) + "."]) + "\n"


def _table(claims: Sequence[Claim]) -> str:
    lines = [HEADS, tuple("---" for _ in HEADS)]
    lines += [(each.claim, each.paper, _told(each.units), _told(each.time)) for each in claims]
    escaped = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _told(finding: Finding) -> str:
    """Return the verdict and what was found. A claim that cannot be judged has no verdict."""
    if finding.verdict == verdicts.DOES_NOT_APPLY:
        return finding.ours
    return f"**{finding.verdict}**: {finding.ours}"
