"""The experiment on the longest changes of the index."""

import json

import pytest

from experiments.load import stalls


@pytest.mark.slow
def test_all_phases_are_timed_and_checked(tmp_path, capsys):
    out = tmp_path / "stalls.json"
    assert stalls.main(["--boxes", "300", "--workloads", "narrow", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    counts = {(row["phase"], row["kind"]): row["count"] for row in rows if "phase" in row}
    assert counts == {
        ("growing", "insert"): 30,
        ("turning over", "insert"): 100,
        ("turning over", "delete"): 100,
        ("turning over", "replace"): 100,
        ("emptying", "delete"): 297,
    }
    boxes = {row["after"]: row["boxes"] for row in rows if "after" in row}
    assert boxes == {"packing": 300, "growing": 330, "turning over": 330, "emptying": 33, "packing anew": 33}
    assert "turning over" in capsys.readouterr().out
