"""The experiment on filters that choose their matcher."""

import json

import pytest

from experiments.speed import choice


@pytest.mark.slow
@pytest.mark.long
def test_it_is_held_against_each_fixed_one(tmp_path, capsys, monkeypatch):
    out, picture = tmp_path / "auto.json", tmp_path / "auto.png"
    monkeypatch.setattr(choice, "STREAMED", 0.01)
    cells = ["--counts", "300", "--batches", "1", "50", "--workloads", "narrow", "sparse"]
    options = ["--repeats", "3", "--seconds", "1", "--out", str(out), "--figure", str(picture)]
    assert choice.main([*cells, *options]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["workload"], row["batch"]) for row in rows] == [
        ("narrow", 1), ("sparse", 1), ("narrow", 50), ("sparse", 50),
    ]  # fmt: skip
    for row in rows:
        assert row["chosen"] in choice.FIXED
        assert row["low"] <= row["over_best"] <= row["high"]
        assert row["us_rtree"] > 0
        assert ("over_response" in row) == (row["batch"] > 1)
        assert ("loss" in row) == (row["best"] == "rtree")
    assert picture.stat().st_size > 0
    assert "auto / best" in capsys.readouterr().out
    before = out.read_text()
    assert choice.main([*cells, *options]) == 0  # all is there
    assert json.loads(out.read_text())["rows"] == json.loads(before)["rows"]


def test_a_ratio_is_paired():
    middle, low, high = choice.ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])
    assert [round(one, 9) for one in (low, middle, high)] == [2.0] * 3
    _, low, high = choice.ratio([2.0, 1.0, 2.0], [1.0, 2.0, 2.0])
    assert low < 1 < high
