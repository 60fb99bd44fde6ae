"""Kept results are of one revision each, which is in the history and has the code that judges them.

`TO_MEASURE` names the results that are not yet so. Measure them again, and take them from there.
"""

import ast
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain

import pytest

from experiments.output import REPORT
from experiments.paper import page, report
from experiments.paper.papers import MODULES
from rtfilter.replay import machine

COMMON = ("paper/verdicts.py", "paper/confidence.py")
"""What the words of claims and intervals mean, for all papers."""
JUDGES: Mapping[str, Sequence[str]] = {
    "fig4a": ("paper/fig4a.py", "paper/plans.py"),
    "fig4b": ("paper/fig4b.py", "paper/plans.py", "paper/timing.py"),
    "fig4c": ("paper/fig4c.py", "paper/plans.py", "paper/timing.py"),
    "fig4d": ("paper/fig4d.py", "paper/plans.py", "paper/live.py"),
    "counting": ("paper/counting.py",),
    "generators": ("paper/generators.py",),
    "thesis": ("thesis/claims.py", "thesis/results.py"),
    "alerting": ("alerting/alerting.py",),
    "forwarding": ("forwarding/forwarding.py", "forwarding/busy.py"),
    "day": ("forwarding/day.py",),
    "survey": ("survey/heuristics.py",),
    "hybrid": ("hybrid/hybrid.py",),
    "newer": ("newer/newer.py",),
}
"""The files below `experiments` with the thresholds, claims and comparisons of each experiment of a paper."""
FIXED = "e2c3ce7a"
"""The last commit that changed the limits of verdicts."""
TO_MEASURE: frozenset[str] = frozenset((
    "auto-100000", "contest", "controllers/contest", "service/service",
))  # fmt: skip
"""Results that are to be measured again, below the folder of kept results, without ``.json``."""


def _git(*command: str) -> list[str]:
    run = subprocess.run(
        ["git", *command], cwd=REPORT, capture_output=True, text=True, check=True, timeout=30
    )
    return run.stdout.split()


@pytest.fixture(scope="module")
def history():
    """All commits of the history."""
    try:
        if _git("rev-parse", "--is-shallow-repository") != ["false"]:
            pytest.skip("a shallow clone has not all revisions")
        return frozenset(_git("rev-list", "HEAD"))
    except (OSError, subprocess.SubprocessError):
        pytest.skip("needs git, and a clone")


@cache
def _until(revision: str) -> frozenset[str]:
    """The commit of a revision and all before it; empty if git does not know it."""
    try:
        return frozenset(_git("rev-list", revision, "--"))
    except subprocess.CalledProcessError:
        return frozenset()


@cache
def _judged_otherwise(experiment: str, revision: str) -> bool:
    """Whether an experiment is judged by other code now than at a revision."""
    if experiment not in JUDGES:
        return False
    for name in (*COMMON, *JUDGES[experiment]):
        run = subprocess.run(
            ["git", "show", f"{revision}:experiments/{name}"], cwd=REPORT, capture_output=True, timeout=30
        )
        now = (REPORT.parent / name).read_bytes()
        if run.returncode or _code(run.stdout) != _code(now):
            return True
    return False


def _code(text: bytes) -> str:
    """The code of a file, without docstrings, comments and imports, which judge nothing."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _judges_nothing(one)]
    return ast.dump(tree)


def _judges_nothing(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)


def wrong(kept, history):
    """What is wrong with the revisions of a result, in words; nothing if all is right."""
    named = {kept["machine"].get("revision"), *_revisions(kept)}
    if len(named) > 1 or any(name is None or ", " in name for name in named):
        return "not of one revision"
    (revision,) = named
    if revision.endswith("-dirty"):
        return "of a tree with changes"
    before = _until(revision)
    if not before or not before <= history:
        return "of a commit that is not in the history"
    return "older than what judges it" if _judged_otherwise(kept["experiment"], revision) else ""


def _revisions(value):
    """All revisions that a result names, at any depth."""
    if isinstance(value, list):
        return {found for one in value for found in _revisions(one)}
    if isinstance(value, dict):
        own = {value["revision"]} if "revision" in value else set()
        return own.union(*map(_revisions, value.values()))
    return set()


def test_kept_results_are_of_one_revision_that_judges_them(history):
    found = {}
    for path in sorted(REPORT.rglob("*.json")):
        name = path.relative_to(REPORT).with_suffix("").as_posix()
        found[name] = wrong(json.loads(path.read_text(encoding="utf-8")), history)
    again = {name: reason for name, reason in found.items() if reason and name not in TO_MEASURE}
    assert again == {}, "measure these again from a clean tree"
    assert {name for name in TO_MEASURE if not found.get(name)} == set(), "take these from TO_MEASURE"


@pytest.mark.parametrize(
    ("revisions", "reason"),
    [
        (["HEAD"], ""),
        (["HEAD", "HEAD~1"], "not of one revision"),
        ([None], "not of one revision"),
        (["HEAD, HEAD~1"], "not of one revision"),
        (["HEAD-dirty"], "of a tree with changes"),
        (["0123abc"], "of a commit that is not in the history"),
    ],
)
def test_what_is_wrong_with_revisions(history, revisions, reason):
    first, *others = revisions
    kept = {"experiment": "some", "machine": {"revision": first}, "rows": [{"revision": r} for r in others]}
    assert wrong(kept, history) == reason


def test_revisions_of_what_a_result_was_made_from_count(history):
    kept = {"experiment": "some", "machine": {"revision": "HEAD"}, "rows": [],
            "settings": {"log": {"machine": {"revision": "HEAD~1"}}}}  # fmt: skip
    assert wrong(kept, history) == "not of one revision"


def test_kept_pages_are_what_kept_numbers_give():
    made = report.pages(REPORT / "paper", REPORT)
    kept = {name: (REPORT / name).read_text(encoding="utf-8") for name in made}
    assert [name for name in made if made[name] != kept[name]] == [], "python -m experiments report"


def test_what_is_older_than_its_thresholds_is_wrong(history):
    (judge,) = JUDGES["newer"]
    added = _git("log", "--diff-filter=A", "--format=%H", "--", str(REPORT.parent / judge))[-1]
    kept = {"experiment": "newer", "machine": {"revision": f"{added}~1"}, "rows": []}
    assert wrong(kept, history) == "older than what judges it"
    assert wrong({**kept, "experiment": "times"}, history) == ""  # which nothing judges


def test_a_process_keeps_the_revision_that_it_began_with(monkeypatch):
    begun = machine.describe()["revision"]
    monkeypatch.setattr(machine, "_git", lambda *_: "of a commit that came meanwhile")
    assert machine.describe()["revision"] == begun


def test_every_experiment_of_a_paper_has_its_judge():
    assert set(MODULES) - {"times"} == set(JUDGES)  # `times` has no claims
    assert all((REPORT.parent / name).is_file() for name in (*COMMON, *chain.from_iterable(JUDGES.values())))


def test_results_of_papers_are_later_than_the_limits_of_verdicts(history):
    (fixed,) = _git("rev-parse", FIXED)
    older = [
        path.stem
        for path in sorted((REPORT / "paper").glob("*.json"))
        if fixed not in _until(json.loads(path.read_text(encoding="utf-8"))["machine"]["revision"])
    ]
    assert older == []
    assert FIXED in page.FIXED


def test_docstrings_and_comments_judge_nothing():
    assert _code(b'"""Old."""\nLEAST = 3  # of ten\n') == _code(b'"""New."""\nLEAST = 3\n')
    assert _code(b"LEAST = 3\n") != _code(b"LEAST = 4\n")
