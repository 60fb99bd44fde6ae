"""The benchmarks run, compare before they time, and keep what they measured. No time is asserted."""

import json
import subprocess
import sys

import numpy as np
import pytest

from experiments import __main__ as command
from experiments import bench, capacity, machine, output, peers
from experiments.workloads import workload
from oracle import matches


@pytest.fixture(scope="module")
def small():
    made = workload("wide", seed=2, dimensions=3)
    return made.subscriptions(0, 400), made.events(0, 60)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    arguments = ["--quick", "--boxes", "600", "--dimensions", "4"]
    assert (
        bench.main(
            [*arguments, "--out", str(folder / "b" / "b.json"), "--figure", str(folder / "p" / "b.png")]
        )
        == 0
    )
    return folder


def test_brute_force_is_the_oracle(small):
    boxes, points = small
    assert [set(rows.tolist()) for rows in bench.brute_force(boxes, points)] == matches(*boxes, points)


@pytest.mark.parametrize("variant", peers.BUILDERS)
@pytest.mark.parametrize("way", peers.WAYS)
def test_every_peer_answers_as_brute_force(small, variant, way):
    boxes, points = small
    answers = peers.WAYS[way](peers.BUILDERS[variant](boxes), points)
    assert [set(ids) for ids in map(np.ndarray.tolist, map(np.asarray, answers))] == matches(*boxes, points)


@pytest.mark.parametrize("build", [bench.inserted, bench.looped])
@pytest.mark.parametrize("batch", [1, 7, 60])
def test_ours_answers_as_brute_force(small, build, batch):
    boxes, points = small
    answers = [set(ids.tolist()) for found in bench.search(build(boxes), points, batch) for ids in found]
    assert answers == matches(*boxes, points)


@pytest.mark.parametrize(("answers", "event"), [([[1, 0], [3]], 1), ([[0], [2]], 0), ([[0, 1, 1], [2]], 0)])
def test_a_wrong_answer_stops_the_benchmark(answers, event):
    expected = [np.array([0, 1]), np.array([2])]
    bench.require_equal("right", [[1, 0], [2]], expected)
    with pytest.raises(AssertionError, match=f"theirs: event {event} matches"):
        bench.require_equal("theirs", answers, expected)


def test_answers_are_compared_before_timing(small, monkeypatch):
    monkeypatch.setitem(peers.WAYS, "lossy", lambda index, points: [[] for _ in points])
    monkeypatch.setattr(bench, "medians", lambda calls, repeats: pytest.fail("timed before compared"))
    with pytest.raises(AssertionError, match="by lossy"):
        bench.measure("wide", *small, bench.QUICK, lambda text: None)


def test_a_run_keeps_rows_settings_and_machine(quick):
    kept = json.loads((quick / "b" / "b.json").read_text())
    assert kept["experiment"] == "bench"
    assert kept["settings"] == bench.QUICK._asdict() | {"boxes": 600, "dimensions": 4, "seed": 1}
    assert kept["machine"] == machine.describe()
    measures = [
        *(f"search, batch of {batch}" for batch in (1000, 100, 1)),
        "insertion, one call",
        "insertion, a call each",
        "bulk loading",
    ]
    assert [(row["workload"], row["measure"]) for row in kept["rows"]] == [
        (name, measure) for name in ("wide", "narrow") for measure in measures
    ]
    for row in kept["rows"]:
        assert row["rtree"] == row["rtree_variants"][row["best"]] == min(row["rtree_variants"].values())
        assert row["ratio"] == pytest.approx(row["rtree"] / row["ours"])
        assert "target" not in row  # targets are for the full size only
    assert [len(row["rtree_variants"]) for row in kept["rows"][:6]] == [6, 6, 6, 2, 2, 1]


def test_a_run_draws_a_picture(quick):
    assert (quick / "p" / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("row", "met"),
    [
        ({"workload": "wide", "measure": "search, batch of 1000", "ratio": 100.0}, True),
        ({"workload": "wide", "measure": "search, batch of 1000", "ratio": 99.9}, False),
        ({"workload": "narrow", "measure": "search, batch of 1000", "ratio": 30.0}, True),
        ({"workload": "narrow", "measure": "search, batch of 1000", "ratio": 29.9}, False),
        ({"workload": "wide", "measure": "insertion, one call", "ratio": 1.0}, True),
        ({"workload": "wide", "measure": "insertion, one call", "ratio": 0.9}, False),
        ({"workload": "wide", "measure": "bulk loading", "ours": 4.9}, True),
        ({"workload": "wide", "measure": "bulk loading", "ours": 5.0}, False),
    ],
)
def test_targets(row, met):
    judged = bench.judge(row)
    assert judged["met"] is met
    assert judged["verdict"] == ("met" if met else "NOT MET")


def test_what_has_no_target_is_not_judged():
    row = {"workload": "wide", "measure": "search, batch of 1", "ratio": 0.1}
    assert bench.judge(row) == row


def test_capacity_measures_each_case(tmp_path, capsys):
    out = tmp_path / "c.json"
    assert capacity.main(["--boxes", "400", "--leaves", "8", "512", "--repeats", "1", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["workload"], row["leaf"]) for row in rows] == [
        ("wide", 8), ("wide", 512), ("narrow", 8), ("narrow", 512),
    ]  # fmt: skip
    assert [row["height"] for row in rows] == [3, 1, 3, 1]
    assert "us, batch 1000" in capsys.readouterr().out


def test_medians_takes_turns():
    calls = []
    times = output.medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_table_aligns_and_leaves_missing_cells_empty():
    text = output.table(
        [{"x": "wide", "y": 1234.5}, {"x": "n", "y": 0.12345, "z": "met"}], {"x": "X", "y": "Y", "z": ""}
    )
    assert text.splitlines() == [
        "X         Y",
        "----  -----  ---",
        "wide  1,234",
        "n     0.123  met",
    ]


def test_machine_in_one_line_names_what_matters():
    line = machine.one_line()
    for package in machine.PACKAGES:
        assert f"{package} {machine.describe()['versions'][package]}" in line
    assert str(machine.describe()["cpu"]) in line


def test_command_passes_arguments_on(monkeypatch):
    given = []
    monkeypatch.setattr(bench, "main", lambda arguments: given.append(arguments) or 3)
    assert command.main(["bench", "--quick", "--seed", "4"]) == 3
    assert given == [["--quick", "--seed", "4"]]


def test_command_lists_the_experiments_and_refuses_others(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in command.EXPERIMENTS)
    with pytest.raises(SystemExit, match="2"):
        command.main(["nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


def test_every_listed_experiment_exists():
    for experiment in command.EXPERIMENTS.values():
        assert callable(command.import_module(experiment.module).main)


def test_importing_the_package_stays_light():
    heavy = {"pandas", "matplotlib", "rtree", "numba"}
    code = f"import sys, experiments.__main__; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_overheads_are_measured(tmp_path, capsys):
    from experiments.overheads import main

    out = tmp_path / "overheads.json"
    assert main(["--boxes", "500", "--repeats", "1", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["unit"] for row in rows] == ["s", "s", "s", "% of a batch", "% of a batch"]
    assert "first match" in capsys.readouterr().out
