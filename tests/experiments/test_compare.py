"""Two kept results side by side: verdicts on made-up rounds."""

import json
import subprocess
from pathlib import Path

import pytest

from experiments.speed import compare

OLD = [10.0, 10.5, 9.5, 10.2, 9.8]


def times(factor):
    return [time * factor for time in OLD]


def bench(tmp_path, name, factor, machine=1.0, **settings):
    """A result of `bench` with two rows, the second never changed; `machine` slows everything."""
    rows = [
        {
            "workload": "wide",
            "measure": measure,
            "rounds": times(f * machine),
            "yardstick_rounds": times(machine),
        }
        for measure, f in (("search", factor), ("insertion", 1.0))
    ]
    rows += [{"workload": "wide", "measure": "memory", "ours": 3.0}, {"workload": "geo", "skipped": "no"}]
    content = {"experiment": "bench", "settings": {"boxes": 9, "seed": 1} | settings, "rows": rows}
    content["machine"] = {"cpu": "some", "revision": name}
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (times(1), "within noise"),
        (times(1.3), "SLOWER"),
        (times(0.7), "faster"),
        (times(1.09), "within noise"),  # apart, but by less than a tenth
        ([9.9, 13, 14, 13, 13], "within noise"),  # rounds overlap
        ([10.1, 7, 7, 7, 7], "within noise"),
    ],
)
def test_verdicts(new, verdict):
    assert compare.judge(OLD, new)["verdict"] == verdict


def test_a_tenth_apart_without_spread_is_noise():
    assert compare.judge([10, 10], [10.9, 10.9])["verdict"] == "within noise"
    assert compare.judge([10, 10], [11.1, 11.1])["verdict"] == "SLOWER"
    assert compare.judge([10, 10], [9.2, 9.2])["verdict"] == "within noise"
    assert compare.judge([10, 10], [9, 9])["verdict"] == "faster"


def test_numbers_of_a_verdict():
    found = compare.judge([2, 4, 3], [8, 6, 7])
    assert (found["old"], found["new"], found["change"]) == (3, 7, pytest.approx(7 / 3))
    assert found["noise"] == pytest.approx(2 / 3)
    assert compare.judge([3, 3], [3, 3])["noise"] == compare.LEAST


@pytest.mark.parametrize(
    ("factor", "status", "text"), [(1.3, 1, "1 slower, 0 faster, of 2"), (0.7, 0, "0 slower, 1 faster, of 2")]
)
def test_exit_status(tmp_path, capsys, factor, status, text):
    old, new = bench(tmp_path, "old", 1.0), bench(tmp_path, "new", factor)
    assert compare.main([str(old), str(new)]) == status
    shown = capsys.readouterr().out
    assert text in shown
    assert "old: old, some" in shown


def test_the_speed_of_the_machine_cancels(tmp_path):
    old, new = bench(tmp_path, "old", 1.0), bench(tmp_path, "new", 1.0, machine=5.0)
    assert compare.main([str(old), str(new)]) == 0
    assert [row["change"] for row in compare.compare(compare.read(old), compare.read(new))] == [1, 1]


def test_of_a_survey_our_rows_are_compared(tmp_path):
    def result(ours):
        point = {"workload": "wide", "subscriptions": 5, "dimensions": 2, "side": None, "batch": 1}
        rows = [
            {"peer": peer} | point | {"rounds": rounds, "yardstick_rounds": times(1)}
            for peer, rounds in (("NumPy", times(9)), ("rtfilter", ours))
        ]
        rows.append({"peer": "rtfilter", "skipped": "no"})
        return {"experiment": "peers", "settings": {"seed": 1}, "rows": rows}

    rows = compare.compare(result(times(1)), result(times(2)))
    assert [(row["workload"], row["change"], row["verdict"]) for row in rows] == [("wide", 2, "SLOWER")]


def test_what_cannot_be_compared_says_why(tmp_path, capsys):
    one = bench(tmp_path, "one", 1.0)
    other = bench(tmp_path, "other", 1.0, boxes=10)
    (tmp_path / "none.json").write_text('{"experiment": "capacity"}')
    (tmp_path / "bad.json").write_text("{")
    empty = bench(tmp_path, "empty", 1.0)
    empty.write_text(json.dumps(json.loads(empty.read_text()) | {"rows": []}))
    few = bench(tmp_path, "few", 1.0)
    rows = json.loads(few.read_text())["rows"]
    short = [
        row | {key: row[key][:2] for key in ("rounds", "yardstick_rounds") if key in row} for row in rows
    ]
    few.write_text(json.dumps(json.loads(few.read_text()) | {"rows": short}))
    (tmp_path / "list.json").write_text("[]")
    for new, text in (
        (few, "fewer than 3 rounds"),
        (tmp_path / "list.json", "no result of bench or peers"),
        (other, "differ in boxes"),
        (tmp_path / "none.json", "no result of bench or peers"),
        (tmp_path / "bad.json", "bad.json:"),
        (tmp_path / "missing.json", "No such file"),
        (empty, "no row of rtfilter in common"),
    ):
        with pytest.raises(SystemExit, match="2"):
            compare.main([str(one), str(new)])
        assert text in capsys.readouterr().err


def test_make_asks_for_both_files():
    root = Path(__file__).parents[2]
    command = ["make", "--silent", "--assume-old=.venv/installed", "bench-compare", "OLD=x"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert run.returncode == 2
    assert "make bench-compare OLD=" in run.stdout
