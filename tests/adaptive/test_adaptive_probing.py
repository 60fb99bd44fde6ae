"""adaptive.probing: the state machine, on a line of levels unless a test says otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from rtfilter.adaptive import Shape
from rtfilter.adaptive.papers.loop import compared
from rtfilter.adaptive.papers.probing import Counts, Mode, ProbeOutcome, Probing
from rtfilter.adaptive.papers.stopping import EarlyStop, Rule


def paper(**options):
    """A rule without what the paper does not have, so that the order of a round is known."""
    return Rule(**{"share": None, "drift": False, "seed": None} | options)


class Line:
    """Levels 0..height-1, with a chosen start."""

    def __init__(self, start=None):
        self._start = start

    def start(self, height):
        return (height - 1) // 2 if self._start is None else self._start

    def clamp(self, position, height):
        return min(position, height - 1)

    def neighbours(self, position, height):
        return {step: position + step for step in (-1, 1) if 0 <= position + step < height}


class Grid:
    """Positions (x, y) of a grid `height` x 4."""

    def __init__(self, start=(0, 0)):
        self._start = start

    def start(self, height):
        return self._start

    def clamp(self, position, height):
        return (min(position[0], height - 1), position[1])

    def neighbours(self, position, height):
        x, y = position
        around = {-1: (x - 1, y), 1: (x + 1, y), -2: (x, y - 1), 2: (x, y + 1)}
        return {step: p for step, p in around.items() if 0 <= p[0] < height and 0 <= p[1] < 4}


class Run:
    """A machine, its decisions, and a driver that answers every batch from `cost(position)`."""

    def __init__(self, rule, height, start=None, space=None, boxes=0):
        self.decisions = []
        self.shape = Shape(height, boxes)
        space, self.counts = space or Line(start), Counts()
        self.machine = Probing(
            space, rule, self.shape, space.start(height), self.decisions.append, self.counts
        )

    def loop(self, cost):
        """Run batches until the loop ends; the positions that they ran at."""
        loops, asked = self.counts.loops, []
        while self.counts.loops == loops:
            position, _, serial = self.machine.ask(self.shape)
            asked.append(position)
            assert self.machine.tell(serial, cost(position))
        return asked

    def settle(self, cost, limit=10_000):
        """Run batches until STABLE; the number of loops that took."""
        loops = self.counts.loops
        while self.machine.mode is Mode.UNSTABLE:
            self.loop(cost)
            assert self.counts.loops - loops <= limit
        return self.counts.loops - loops

    @property
    def outcomes(self):
        return [decision.outcome for decision in self.decisions]


tolerances = st.sampled_from([0.0, None])
stops = st.sampled_from([None, EarlyStop(minimum=2)])


@st.composite
def valleys(draw, smallest=1):
    """Cost per level, falling to a minimum and rising from it, by steps >= `smallest`."""
    steps = st.lists(st.integers(smallest, 9), max_size=5)
    left, right = draw(steps), draw(steps)
    costs = [10]
    for step in left:
        costs.insert(0, costs[0] + step)
    for step in right:
        costs.append(costs[-1] + step)
    return costs


# Where it stops


@given(st.data(), valleys(), st.integers(1, 5), tolerances, stops)
def test_on_a_noise_free_valley_it_stops_at_the_minimum_from_any_start(data, costs, n, tolerance, stop):
    start = data.draw(st.integers(0, len(costs) - 1))
    run = Run(paper(rounds=n, tolerance=tolerance, early_stop=stop), len(costs), start)
    loops = run.settle(costs.__getitem__)
    best = costs.index(min(costs))
    assert run.machine.position == best
    assert run.counts.moves == abs(start - best)
    assert loops == (abs(start - best) + 1 if len(costs) > 1 else 0)
    assert run.counts.anomalies == run.counts.oscillations == 0


@given(st.data(), valleys(smallest=0), st.integers(1, 3))
def test_with_ties_it_stops_where_no_neighbour_is_better(data, costs, n):
    start = data.draw(st.integers(0, len(costs) - 1))
    run = Run(paper(rounds=n), len(costs), start)
    run.settle(costs.__getitem__)
    end = run.machine.position
    assert all(costs[end] <= costs[k] for k in (end - 1, end + 1) if 0 <= k < len(costs))


def test_on_a_grid_it_walks_along_both_axes():
    run = Run(paper(rounds=2), 6, space=Grid())
    run.settle(lambda p: abs(p[0] - 4) + abs(p[1] - 2) + 1)
    assert run.machine.position == (4, 2)


@given(st.data(), st.integers(2, 9), tolerances)
def test_ties_do_not_cause_endless_movement(data, height, tolerance):
    run = Run(paper(rounds=1, tolerance=tolerance), height, data.draw(st.integers(0, height - 1)))
    run.settle(lambda level: 1.0, limit=3 * height)
    assert run.counts.loops == 1 or tolerance is None


def test_strict_rule_walks_on_when_equal():
    run = Run(paper(rounds=1, tolerance=None), 7, 3)
    run.loop(lambda level: 1.0)
    assert run.machine.position == 2


@cases("stop", [None, EarlyStop(minimum=2)])
@cases(("tolerance", "loops"), [(0.0, 2), (0.049, 2), (0.051, 1)])
def test_a_slightly_better_neighbour_is_settled_at_without_a_loop_around_it(tolerance, loops, stop):
    run = Run(paper(rounds=3, tolerance=tolerance, early_stop=stop), 7, 3)
    assert run.settle([9.0, 9.0, 1.0, 1.05, 9.0, 9.0, 9.0].__getitem__) == loops
    assert run.machine.position == 2
    assert run.counts.moves == 1


def test_of_slightly_better_neighbours_the_best_is_settled_at():
    run = Run(paper(rounds=3, tolerance=0.05), 6, space=Grid((3, 2)))
    run.settle({(3, 2): 1.04, (2, 2): 1.02, (4, 2): 1.03, (3, 1): 9.0, (3, 3): 1.0}.__getitem__)
    assert run.machine.position == (3, 3)
    assert run.outcomes == [ProbeOutcome.PROBE, ProbeOutcome.SETTLE]


@given(st.data(), st.integers(2, 8), st.booleans(), tolerances)
def test_an_episode_ends_whatever_the_noise(data, height, grid, tolerance):
    run = Run(paper(rounds=1, tolerance=tolerance), height, space=Grid() if grid else None)
    noise = st.floats(0, 100)
    run.settle(lambda position: data.draw(noise), limit=3 * (height + 4))


@pytest.mark.parametrize(("costs", "end"), [([5.0, 9.0, 4.0], 2), ([4.0, 9.0, 5.0], 0), ([4.0, 9.0, 4.0], 0)])
def test_if_both_neighbours_are_better_it_moves_to_the_better_and_counts(costs, end):
    run = Run(paper(rounds=3), 3, 1)
    run.loop(costs.__getitem__)
    assert run.machine.position == end
    assert run.counts.anomalies == 1
    assert run.decisions[-1].anomaly


def test_one_better_neighbour_is_no_anomaly():
    run = Run(paper(rounds=3), 3, 1)
    run.loop([5.0, 9.0, 10.0].__getitem__)
    assert run.counts.anomalies == 0


def test_two_reversals_settle_at_the_smallest_mean_of_the_episode():
    run = Run(paper(rounds=1), 7, 3)
    run.loop({2: 20.0, 3: 10.0, 4: 9.0}.__getitem__)
    assert run.machine.position == 4
    run.loop({3: 8.0, 4: 10.0, 5: 20.0}.__getitem__)
    assert run.machine.position == 3  # first reversal
    run.loop({2: 20.0, 3: 10.0, 4: 9.5}.__getitem__)  # the second would be to 4
    assert run.machine.mode is Mode.STABLE
    assert run.machine.position == 3  # (10 + 8 + 10) / 3 < (9 + 10 + 9.5) / 3
    assert run.counts.oscillations == 1
    assert run.decisions[-1].outcome is ProbeOutcome.OSCILLATION
    assert compared(run.decisions[-1].samples, 4) == {
        2: 20.0,
        3: pytest.approx(28 / 3),
        4: pytest.approx(28.5 / 3),
        5: 20.0,
    }


def test_one_reversal_is_forgiven():
    run = Run(paper(rounds=1), 7, 3)
    run.loop({2: 20.0, 3: 10.0, 4: 9.0}.__getitem__)
    run.loop({3: 8.0, 4: 10.0, 5: 20.0}.__getitem__)
    run.settle({1: 5.0, 2: 4.0, 3: 6.0, 4: 7.0}.__getitem__)
    assert run.machine.position == 2
    assert run.counts.oscillations == 0


# The loop


@given(st.integers(1, 9), st.integers(3, 8), st.data())
def test_a_loop_is_3n_batches_in_the_order_c_upper_lower(n, height, data):
    c = data.draw(st.integers(1, height - 2))
    run = Run(paper(rounds=n), height, c)
    assert run.loop(lambda level: 1.0) == [c, c - 1, c + 1] * n
    assert run.machine.mode is Mode.STABLE


@pytest.mark.parametrize(("c", "other"), [(0, 1), (4, 3)])
def test_a_loop_at_a_boundary_is_2n_batches(c, other):
    run = Run(paper(rounds=4), 5, c)
    assert run.loop(lambda level: 1.0) == [c, other] * 4


def test_a_loop_compares_means_over_all_its_rounds():
    run = Run(paper(rounds=3), 3, 1)
    times = {0: [1.0, 9.0, 9.0], 1: [2.0, 2.0, 2.0], 2: [1.0, 1.0, 9.0]}
    run.loop(lambda level: times[level].pop(0))
    assert run.decisions[-1].outcome is ProbeOutcome.SETTLE
    assert {tally.count for tally in run.decisions[-1].samples.values()} == {3}
    assert compared(run.decisions[-1].samples, 1) == {
        0: pytest.approx(19 / 3),
        1: 2.0,
        2: pytest.approx(11 / 3),
    }


def test_sums_are_cleared_between_loops():
    run = Run(paper(rounds=2), 5, 2)
    run.loop({1: 9.0, 2: 5.0, 3: 1.0}.__getitem__)
    run.loop({2: 9.0, 3: 4.0, 4: 9.0}.__getitem__)
    assert compared(run.decisions[-1].samples, 3)[3] == 4.0


# Modes


def test_stable_until_exactly_threshold_updates():
    run = Run(paper(rounds=1, threshold=10), 3)
    run.settle(lambda level: 1.0)
    run.machine.update(9)
    assert (run.machine.mode, run.machine.updates) == (Mode.STABLE, 9)
    assert run.machine.ask(run.shape) == (1, 0, 0)
    run.machine.update(1)
    assert (run.machine.mode, run.machine.updates) == (Mode.UNSTABLE, 0)
    assert run.counts.transitions == 2


def test_updates_beyond_the_threshold_are_not_carried_over():
    run = Run(paper(rounds=1, threshold=10), 3)
    run.settle(lambda level: 1.0)
    run.machine.update(25)
    run.settle(lambda level: 1.0)
    assert (run.machine.mode, run.machine.updates) == (Mode.STABLE, 0)


def test_updates_count_in_stable_mode_only():
    run = Run(paper(rounds=1, threshold=10), 3)
    run.machine.update(9)
    run.settle(lambda level: 1.0)
    run.machine.update(9)
    assert (run.machine.mode, run.machine.updates) == (Mode.STABLE, 9)


def test_a_new_episode_follows_the_minimum_that_moved():
    run = Run(paper(rounds=2, threshold=10), 7)
    run.settle([7, 6, 5, 4, 5, 6, 7].__getitem__)
    assert run.machine.position == 3
    run.machine.update(10)
    run.settle([9, 8, 7, 6, 5, 4, 5].__getitem__)
    assert run.machine.position == 5


# Late reports


def test_reports_of_an_earlier_episode_are_ignored():
    run = Run(paper(rounds=1, threshold=1), 3)
    _, _, late = run.machine.ask(run.shape)
    run.settle(lambda level: 1.0)
    assert not run.machine.tell(late, 0.5)
    run.machine.update(1)
    assert not run.machine.tell(late, 0.5)
    assert run.counts.stale_reports == 2
    assert run.loop([9.0, 1.0, 9.0].__getitem__) == [1, 0, 2]


def test_late_reports_count_in_the_next_loop_if_their_level_is_there():
    run = Run(paper(rounds=1), 7, 3)
    asked = [run.machine.ask(run.shape) for _ in range(6)]
    assert [position for position, *_ in asked] == [3, 2, 4, 3, 2, 4]
    for (_, _, serial), value in zip(asked[:3], [5.0, 9.0, 1.0], strict=True):
        assert run.machine.tell(serial, value)
    assert run.machine.position == 4
    told = [run.machine.tell(serial, 2.0) for *_, serial in asked[3:]]
    assert told == [True, False, True]  # the loop around 4 samples 3 and 4, but not 2


def test_a_report_counts_once():
    run = Run(paper(rounds=2), 3)
    *_, serial = run.machine.ask(run.shape)
    assert run.machine.tell(serial, 1.0)
    assert not run.machine.tell(serial, 1.0)
    assert run.counts.stale_reports == 1


def test_a_serial_that_was_never_given_is_stale():
    run = Run(paper(rounds=2), 3)
    *_, serial = run.machine.ask(run.shape)
    assert not run.machine.tell(serial + 1, 1.0)


def test_a_lost_sample_counts_but_has_no_value():
    run = Run(paper(rounds=1), 3, 1)
    serials = {run.machine.ask(run.shape)[0]: run.counts.serials for _ in range(3)}
    run.machine.tell(serials[0], 2.0)
    run.machine.tell(serials[2], 3.0)
    while not run.counts.lost:  # later ones at other levels report
        position, _, serial = run.machine.ask(run.shape)
        if position != 1:
            run.machine.tell(serial, 2.0 + position / 2)
    assert run.decisions[-1].samples[1].lost == 1
    assert run.machine.position == 0  # the best of those of which something is known


# Shapes


def test_one_level_is_stable_at_once():
    run = Run(paper(), 1)
    assert run.machine.ask(run.shape) == (0, 0, 0)
    assert run.machine.mode is Mode.STABLE
    assert run.outcomes == [ProbeOutcome.PROBE, ProbeOutcome.ALONE]


def test_a_share_of_the_boxes_when_it_settled_begins_an_episode():
    run = Run(paper(rounds=1, share=0.25), 3, boxes=1000)
    run.settle(lambda level: 1.0)
    run.shape = Shape(3, 4000)
    run.machine.ask(run.shape)
    run.machine.update(249)
    assert run.machine.mode is Mode.STABLE
    run.machine.update(1)
    assert run.machine.mode is Mode.UNSTABLE


def test_the_share_of_an_unknown_number_of_boxes_is_none():
    run = Run(paper(rounds=1, share=0.25, threshold=10), 3)
    run.settle(lambda level: 1.0)
    run.machine.update(9)
    assert run.machine.mode is Mode.STABLE


def test_an_index_that_was_built_anew_begins_an_episode_once():
    run = Run(paper(rounds=2, share=0.25), 3)
    run.settle(lambda level: 1.0)
    run.shape = Shape(3, packed=1)
    assert run.machine.ask(run.shape)[1] == 2
    run.settle(lambda level: 1.0)
    assert run.machine.ask(run.shape)[1] == 0


def test_a_loop_in_which_the_index_was_built_anew_ends_and_is_not_trusted():
    run = Run(paper(rounds=2, share=0.25), 3)
    run.machine.ask(run.shape)
    run.shape = Shape(3, packed=1)
    for _ in range(2):
        run.loop(lambda level: 1.0)
    assert run.outcomes == [ProbeOutcome.PROBE, ProbeOutcome.SETTLE, ProbeOutcome.PROBE, ProbeOutcome.SETTLE]


@pytest.mark.parametrize(("updates", "episode"), [(249, 1), (250, 2)])
def test_samples_are_given_up_where_much_changed_meanwhile(updates, episode):
    run = Run(paper(rounds=2, share=0.25), 3, boxes=1000)
    run.machine.ask(run.shape)
    run.machine.update(updates)
    run.machine.resume()
    assert run.machine.ask(run.shape)[1] == episode


@cases(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds, the samples per position, must be at least 1"),
        ({"threshold": 0}, "threshold must be at least 1"),
        ({"tolerance": -0.1}, "tolerance is a share >= 0"),
        ({"tolerance": float("nan")}, "tolerance is a share >= 0"),
        ({"share": 0.0}, "share of the boxes must be above 0"),
        ({"share": float("nan")}, "share of the boxes must be above 0"),
    ],
)
def test_rules_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Rule(**options)
