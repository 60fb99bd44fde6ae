"""The table of the demo, and how it waits for the compiler."""

import json
import subprocess
import sys

import pytest

from experiments import demo
from rtfilter.replay import PEER, ReplayReport, ReplaySettings


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
    report = ReplayReport("wide", ReplaySettings(1000, 2), ["adaptive", PEER])
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
    monkeypatch.setattr(demo, "COMPILE", ("pass", "raise SystemExit('no compiler here')"))
    with demo.compiling(False) as wait, pytest.raises(ChildProcessError, match="no compiler here"):
        wait()


def test_leaving_early_ends_the_compiler(monkeypatch):
    monkeypatch.setattr(demo, "COMPILE", ("import time; time.sleep(600)", "pass"))
    started = []
    begin = demo.subprocess.Popen

    def noted(*given, **options):
        started.append(begin(*given, **options))
        return started[-1]

    monkeypatch.setattr(demo.subprocess, "Popen", noted)
    with pytest.raises(KeyboardInterrupt), demo.compiling(False):
        raise KeyboardInterrupt
    assert len(started) == 2
    assert all(child.returncode is not None for child in started)


DEMO = """
import sys
from experiments import demo
from rtfilter.index.kernels.jit import Kernel
demo.pack()
demo.search()
known = {kernel: len(kernel.overloads) for kernel in Kernel.known}
demo.COMPILE = ()
demo.main(["--quick", "--out", sys.argv[1]])
print([kernel.py_func.__name__ for kernel in Kernel.known if len(kernel.overloads) > known.get(kernel, 0)])
"""


@pytest.mark.slow
def test_it_leaves_table_and_picture_and_compiles_nothing_while_it_measures(tmp_path):
    command = [sys.executable, "-c", DEMO, tmp_path]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "500 subscriptions, each a range of values for all 12 attributes" in out
    assert "500 alerts on departures from New York" in out
    assert out.count("rtfilter, adaptive") == 2
    assert out.splitlines()[-1] == "[]"
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads((tmp_path / "demo.json").read_text())) == 2
