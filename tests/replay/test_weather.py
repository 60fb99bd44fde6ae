"""The hours of New York: what they are, and subscriptions around them."""

import numpy as np
import pytest

from oracle import as_sets
from rtfilter import EventFilter
from rtfilter.replay.workloads import weather, workload


def test_every_hour_is_there_with_its_gaps():
    hours = weather.load()
    assert hours.shape == (26_115, 12)
    assert tuple(hours.columns) == weather.SCHEMA.names
    assert hours["wind_gust"].isna().mean() == pytest.approx(0.7956, abs=1e-4)
    assert not hours["visib"].isna().any()


def test_ranges_hold_an_hour_and_a_share_of_all():
    hours = weather.load()
    low, high = workload("weather", seed=2).subscriptions(0, 400)
    constrained = np.isfinite(low)
    assert (constrained == np.isfinite(high)).all()
    assert set(constrained.sum(axis=1)) <= {1, 2, 3, 4}  # an hour may lack what is asked for
    assert constrained.sum(axis=0).min() > 0
    assert constrained[:, hours.columns.get_loc("temp")].sum() > 2 * constrained[:, 1].sum()
    assert (low <= high).all()
    values = hours.to_numpy(float)
    for k in range(40):
        inside = ((low[k] <= values) & (values <= high[k]))[:, constrained[k]]
        assert inside.all(axis=1).any()
        for share in inside.sum(axis=0) / (~np.isnan(values[:, constrained[k]])).sum(axis=0):
            assert share > weather.WIDTHS[0] / 4  # less only at the ends of the range


def test_a_filter_matches_hours_as_comparisons_say():
    made = workload("weather", seed=1)
    target = EventFilter(made.schema)
    made.subscribe(target, 0, 300)
    low, high = made.subscriptions(0, 300)
    values = made.events(100, 60).to_numpy(float)
    free = np.isinf(low) & np.isinf(high)
    expected = [
        set(np.flatnonzero((free | ((low <= event) & (event <= high))).all(axis=1)).tolist())
        for event in values
    ]
    assert any(expected)
    assert as_sets(target.match_batch(made.events(100, 60))) == expected


def test_the_year_begins_anew_and_rows_do_not_depend_on_cuts():
    made = workload("weather", seed=1)
    assert made.events(26_115 + 7, 3).equals(made.events(7, 3))
    whole, part = made.subscriptions(0, 5000), made.subscriptions(4090, 20)
    assert np.array_equal(whole.low[4090:4110], part.low)
    with pytest.raises(ValueError, match="must not be negative"):
        made.events(-1, 3)
    with pytest.raises(ValueError, match="leave dimensions out"):
        workload("weather", dimensions=3)
