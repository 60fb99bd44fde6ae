"""A table with one index beside one for each connection: both answer the same, and both are timed."""

import json

import numpy as np
import pytest

from experiments.forwarding import tables
from lengths import long_but


@pytest.mark.parametrize("share", long_but([0.01, 0.3, 1.0], [0.3]))
@pytest.mark.slow
def test_conditions_match_that_share_of_events(share):
    rng = np.random.default_rng(0)
    one, _ = tables.made(tables.boxes(1000, share, rng), connections=1000)
    found = tables.match_one(one, [{"x": x, "y": y} for x, y in rng.uniform(0, 1, (200, 2))])
    assert np.mean([len(own) for own in found]) == pytest.approx(1000 * share, rel=0.1)


def test_both_are_timed_and_kept(tmp_path, capsys):
    out = tmp_path / "tables.json"
    options = ["--connections", "2", "--subscriptions", "40", "--shares", "0.1", "1", "--repeats", "1"]
    assert tables.main([*options, "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["share"] for row in rows] == [0.1, 1.0]
    assert all(row["one"] > 0 and row["each"] > 0 for row in rows)
    assert "each / one" in capsys.readouterr().out
