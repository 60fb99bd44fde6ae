"""The table of the demo, and how it waits for the compiler."""

import sys

import pytest

from experiments import demo
from rtfilter.replay import PEER, Report, Settings


def row(contender, burst, size, response, level=None, group=None):
    found = {"contender": contender, "burst": burst, "size": size, "response": response}
    return {**found, "level": level, "group": group}


@pytest.mark.parametrize(
    ("level", "group", "said"),
    [
        (0, None, "all at once"),
        (0, 16, "all at once"),
        (1, 1, "one by one from level 1"),
        (0, 1, "one by one"),
        (1, 4, "groups of 4 from level 1"),
    ],
)
def test_a_plan_is_said_in_words(level, group, said):
    assert demo.plan(row("adaptive", 0, 16, 0.1, level, group)) == said


def test_the_table_compares_on_the_bursts_that_rtree_ran_too():
    report = Report("wide", Settings(1000, 2), ["adaptive", PEER])
    report.rows = [
        row("adaptive", 0, 16, 0.001, 0, 1),
        row(PEER, 0, 16, 0.05),
        row("adaptive", 1, 16, 0.003, 0, None),
        row("adaptive", 1, 512, 0.003, 1, 64),
    ]
    peer, ours = demo.lines(report, [16, 512])
    assert peer == {"by": PEER, "faster": "1", "16": "50 ms", "plan": ""}
    assert ours["by"] == "rtfilter, adaptive"
    assert (ours["16"], ours["512"], ours["faster"]) == ("2 ms", "3 ms", "50")
    assert ours["plan"] == "all at once | groups of 64 from level 1"
    assert demo.text(report).startswith("1,000 subscriptions, each a range")


def test_an_error_of_the_compiler_is_shown(monkeypatch):
    monkeypatch.setattr(demo, "COMPILE", "raise SystemExit('no compiler here')")
    with demo.compiling(False) as wait, pytest.raises(ChildProcessError, match="no compiler here"):
        wait()


def test_leaving_early_ends_the_compiler(monkeypatch):
    monkeypatch.setattr(demo, "COMPILE", "import time; time.sleep(600)")
    started = []
    begin = demo.subprocess.Popen
    monkeypatch.setattr(
        demo.subprocess, "Popen", lambda *a, **k: started.append(begin(*a, **k)) or started[0]
    )
    with pytest.raises(KeyboardInterrupt), demo.compiling(False):
        raise KeyboardInterrupt
    assert started[0].args[0] == sys.executable
    assert started[0].returncode is not None
