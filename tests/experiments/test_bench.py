"""The benchmarks run, compare before they time, and keep what they measured. No time is asserted."""

import json
import subprocess
import sys

import pytest

from experiments import __main__ as command
from experiments import peers, timing
from experiments.speed import bench, capacity
from oracle import matches
from rtfilter import RStarTree
from rtfilter.replay import machine
from rtfilter.replay.output import table
from rtfilter.replay.workloads import workload


@pytest.fixture(scope="module")
def small():
    made = workload("wide", seed=2, dimensions=3)
    return made.subscriptions(0, 400), made.events(0, 60)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    arguments = ["--quick", "--boxes", "600", "--workloads", "sparse", "geo"]
    assert (
        bench.main(
            [*arguments, "--out", str(folder / "b" / "b.json"), "--figure", str(folder / "p" / "b.png")]
        )
        == 0
    )
    return folder


@pytest.mark.parametrize("batch", [1, 7, 60])
def test_ours_answers_as_brute_force(small, batch):
    boxes, points = small
    tree = RStarTree.bulk_load(*boxes)
    answers = [set(ids.tolist()) for found in bench.search(tree, points, batch) for ids in found]
    assert answers == matches(*boxes, points)


@pytest.mark.slow
def test_answers_are_compared_before_timing(monkeypatch):
    lossy = property(lambda self: {"lossy": lambda points: [[] for _ in points]})
    monkeypatch.setattr(peers.PEERS["NumPy"], "ways", lossy)
    monkeypatch.setattr(bench, "rounds", lambda *given: pytest.fail("timed before compared"))
    with pytest.raises(AssertionError, match="NumPy by lossy"):
        bench.measure(workload("wide", dimensions=3), bench.QUICK, lambda text: None, lambda *skipped: None)


@pytest.mark.slow
@pytest.mark.xdist_group("bench")
@pytest.mark.long
def test_a_run_keeps_rows_settings_and_machine(quick):
    kept = json.loads((quick / "b" / "b.json").read_text())
    assert kept["experiment"] == "bench"
    assert kept["settings"] == bench.QUICK._asdict() | {
        "boxes": 600,
        "workloads": ["sparse", "geo"],
        "seed": 1,
    }
    assert kept["machine"] == machine.describe()
    measures = [
        *(f"search, batch of {batch}" for batch in (1000, 100, 1)),
        *(f"{change}, {way}" for change in ("insertion", "deletion") for way in ("one call", "a call each")),
        "bulk loading",
        "memory",
    ]
    rows = [row for row in kept["rows"] if "skipped" not in row]
    assert [(row["workload"], row["measure"]) for row in rows] == [
        (name, measure) for name in ("sparse", "geo") for measure in measures
    ]
    for row in rows:
        assert "target" not in row  # targets are for many boxes only
        if row["measure"] == "memory":
            continue
        assert row["rtree"] == min(time for name, time in row["peers"].items() if name.startswith("rtree"))
        assert row["ratio"] == pytest.approx(row["rtree"] / row["ours"])
        assert row["lead"] == pytest.approx(min(row["peers"].values()) / row["ours"])
        assert row["peers"][row["next"]] == min(row["peers"].values())
        assert len(row["rounds"]) == len(row["yardstick_rounds"]) == bench.QUICK.repeats
    assert {name.partition(",")[0] for name in rows[9]["peers"]} == set(peers.PEERS) - {
        "rtfilter",
        "mokaccino",
    }
    skipped = [(row["workload"], row["peer"]) for row in kept["rows"] if "skipped" in row]
    assert skipped == [("sparse", "boostree"), ("sparse", "shapely STRtree"), ("geo", "mokaccino")]


@pytest.mark.slow
@pytest.mark.long
def test_updates_leave_the_index_as_it_was(monkeypatch):
    trees = []
    load = RStarTree.bulk_load
    monkeypatch.setattr(RStarTree, "bulk_load", lambda *boxes: trees.append(load(*boxes)) or trees[-1])
    size = bench.QUICK._replace(boxes=500, repeats=2)
    bench.measure(workload("narrow", dimensions=3), size, lambda text: None, lambda *skipped: None)
    for tree in trees:
        tree.check()
    assert {len(tree) for tree in trees} == {50, 500}


@pytest.mark.slow
@pytest.mark.xdist_group("bench")
@pytest.mark.long
def test_a_run_draws_a_picture(quick):
    assert (quick / "p" / "b.png").read_bytes().startswith(b"\x89PNG")


SEARCH = "search, batch of 1000"


@pytest.mark.parametrize(
    ("workload", "measure", "boxes", "bound", "found"),
    [
        ("wide", SEARCH, 100_000, "ratio", 100),
        ("wide", SEARCH, 1_000_000, "ratio", 800),
        ("narrow", SEARCH, 999_999, "ratio", 30),
        ("narrow", SEARCH, 1_000_000, "ratio", 250),
        ("dense", SEARCH, 1_000_000, "ratio", 200),
        ("nested", SEARCH, 100_000, "lead", 1),
        ("geo", SEARCH, 100_000, "lead", 1),
        ("sparse", "insertion, one call", 100_000, "ratio", 1),
        ("sparse", "insertion, one call", 1_000_000, "ratio", 3),
        ("wide", "deletion, one call", 1_000_000, "ratio", 3),
        ("wide", "bulk loading", 100_000, "ours", 5),
        ("wide", "bulk loading", 1_000_000, "ours", 2),
        ("wide", "memory", 100_000, "ours", 450),
    ],
)
def test_targets(workload, measure, boxes, bound, found):
    row = {"workload": workload, "measure": measure, "ratio": 0.0, "lead": 0.0, "ours": 1e9}
    better = -1 if bound == "ours" else 1
    for value, met in ((found, True), (found + 0.01 * better, True), (found - 0.01 * better, False)):
        judged = bench.judge(row | {bound: value}, boxes)
        assert judged["met"] is met
        assert judged["verdict"] == ("met" if met else "NOT MET")
        assert str(found) in judged["target"]


@pytest.mark.parametrize(
    ("workload", "measure", "boxes"),
    [
        ("wide", "search, batch of 1", 1_000_000),
        ("wide", SEARCH, 99_999),
        ("dense", SEARCH, 999_999),
        ("sparse", SEARCH, 1_000_000),
        ("geo", "memory", 1_000_000),
    ],
)
def test_what_has_no_target_is_not_judged(workload, measure, boxes):
    row = {"workload": workload, "measure": measure, "ratio": 0.1, "lead": 0.1, "ours": 9e9}
    assert bench.judge(row, boxes) == row


def test_a_row_names_the_yardstick_and_the_next_best():
    row = bench.compare(
        "wide",
        "search",
        [2e-6, 1e-6, 3e-6],
        {"rtree packed 100/100, x": [9e-6] * 3, "NumPy, scan": [4e-6, 5e-6, 7e-6]},
    )
    assert (row["ours"], row["rtree"], row["ratio"], row["lead"]) == pytest.approx((2, 9, 4.5, 2.5))
    assert (row["next"], row["yardstick"], row["best"]) == ("NumPy, scan", "NumPy, scan", "packed 100/100, x")
    assert row["rounds"] == pytest.approx([2, 1, 3])
    assert row["yardstick_rounds"] == pytest.approx([4, 5, 7])
    assert "rtree" not in bench.compare("wide", "search", [1.0], {"NumPy, scan": [2.0]})


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
    times = timing.medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_short_calls_are_made_twice_where_caches_should_be_warm():
    calls = []
    times = timing.rounds({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, warm=60)
    assert calls == ["a", "a", "b", "b"] * 2
    assert [len(taken) for taken in times.values()] == [2, 2]
    timing.rounds({"a": lambda: calls.append("c")}, 1)
    assert calls[8:] == ["c"]


def test_table_aligns_and_leaves_missing_cells_empty():
    text = table(
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
    for package in machine.PEERS:
        assert f"{package} {machine.describe()['versions'][package]}" in machine.peers_line()


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
        assert callable(command.import_module(f"experiments.{experiment.module}").main)


def test_importing_the_package_stays_light():
    heavy = {"pandas", "matplotlib", "rtree", "numba", "duckdb", "polars"}
    code = f"import sys, experiments.__main__; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.long
def test_overheads_are_measured(tmp_path, capsys):
    from experiments.speed.overheads import main

    out = tmp_path / "overheads.json"
    assert main(["--boxes", "500", "--repeats", "1", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    costs = ["s", "s", "s", "% of a batch", "% of a batch", "% of a core"]
    assert [row["unit"] for row in rows] == [*costs, "bytes", *["us an event"] * 3]
    assert "first match" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--boxes=0", "--repeats=-1", "--boxes=many"])
def test_counts_are_positive(option, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench.main([option])
    assert "must be 1 or more" in capsys.readouterr().err
