"""adaptive.probing: the state machine, on a line of levels unless a test says otherwise."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.adaptive import probing
from rtfilter.adaptive.probing import Mode, Outcome, Probing, Rule
from rtfilter.adaptive.stopping import EarlyStop


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

    def __init__(self, rule, height, start=None, space=None):
        self.decisions = []
        self.height = height
        self.machine = Probing(space or Line(start), rule, height, self.decisions.append)

    def loop(self, cost):
        """Run batches until the loop ends; the positions that they ran at."""
        loops, asked = self.machine.loops, []
        while self.machine.loops == loops:
            position, episode, serial = self.machine.ask(self.height)
            asked.append(position)
            assert self.machine.tell(episode, serial, cost(position))
        return asked

    def settle(self, cost, limit=10_000):
        """Run batches until STABLE; the number of loops that took."""
        loops = self.machine.loops
        while self.machine.mode is Mode.UNSTABLE:
            self.loop(cost)
            assert self.machine.loops - loops <= limit
        return self.machine.loops - loops

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
    run = Run(Rule(rounds=n, tolerance=tolerance, early_stop=stop), len(costs), start)
    loops = run.settle(costs.__getitem__)
    best = costs.index(min(costs))
    assert run.machine.position == best
    assert run.machine.moves == abs(start - best)
    assert loops == (abs(start - best) + 1 if len(costs) > 1 else 0)
    assert run.machine.anomalies == run.machine.oscillations == 0


@given(st.data(), valleys(smallest=0), st.integers(1, 3))
def test_with_ties_it_stops_where_no_neighbour_is_better(data, costs, n):
    start = data.draw(st.integers(0, len(costs) - 1))
    run = Run(Rule(rounds=n), len(costs), start)
    run.settle(costs.__getitem__)
    end = run.machine.position
    assert all(costs[end] <= costs[k] for k in (end - 1, end + 1) if 0 <= k < len(costs))


def test_on_a_grid_it_walks_along_both_axes():
    run = Run(Rule(rounds=2), 6, space=Grid())
    run.settle(lambda p: abs(p[0] - 4) + abs(p[1] - 2) + 1)
    assert run.machine.position == (4, 2)


@given(st.data(), st.integers(2, 9), tolerances)
def test_ties_do_not_cause_endless_movement(data, height, tolerance):
    run = Run(Rule(rounds=1, tolerance=tolerance), height, data.draw(st.integers(0, height - 1)))
    run.settle(lambda level: 1.0, limit=3 * height)
    assert run.machine.loops == 1 or tolerance is None


def test_strict_rule_walks_on_when_equal():
    run = Run(Rule(rounds=1, tolerance=None), 7, 3)
    run.loop(lambda level: 1.0)
    assert run.machine.position == 2


@pytest.mark.parametrize("stop", [None, EarlyStop(minimum=2)])
@pytest.mark.parametrize(("tolerance", "loops"), [(0.0, 2), (0.049, 2), (0.051, 1)])
def test_a_slightly_better_neighbour_is_settled_at_without_a_loop_around_it(tolerance, loops, stop):
    run = Run(Rule(rounds=3, tolerance=tolerance, early_stop=stop), 7, 3)
    assert run.settle([9.0, 9.0, 1.0, 1.05, 9.0, 9.0, 9.0].__getitem__) == loops
    assert run.machine.position == 2
    assert run.machine.moves == 1


def test_of_slightly_better_neighbours_the_best_is_settled_at():
    run = Run(Rule(rounds=3, tolerance=0.05), 6, space=Grid((3, 2)))
    run.settle({(3, 2): 1.04, (2, 2): 1.02, (4, 2): 1.03, (3, 1): 9.0, (3, 3): 1.0}.__getitem__)
    assert run.machine.position == (3, 3)
    assert run.outcomes == [Outcome.PROBE, Outcome.SETTLE]


@given(st.data(), st.integers(2, 8), st.booleans(), tolerances)
def test_an_episode_ends_whatever_the_noise(data, height, grid, tolerance):
    run = Run(Rule(rounds=1, tolerance=tolerance), height, space=Grid() if grid else None)
    noise = st.floats(0, 100)
    run.settle(lambda position: data.draw(noise), limit=3 * (height + 4))


@pytest.mark.parametrize(("costs", "end"), [([5.0, 9.0, 4.0], 2), ([4.0, 9.0, 5.0], 0), ([4.0, 9.0, 4.0], 0)])
def test_if_both_neighbours_are_better_it_moves_to_the_better_and_counts(costs, end):
    run = Run(Rule(rounds=3), 3, 1)
    run.loop(costs.__getitem__)
    assert run.machine.position == end
    assert run.machine.anomalies == 1
    assert run.decisions[-1].anomaly


def test_one_better_neighbour_is_no_anomaly():
    run = Run(Rule(rounds=3), 3, 1)
    run.loop([5.0, 9.0, 10.0].__getitem__)
    assert run.machine.anomalies == 0


def test_two_reversals_settle_at_the_smallest_mean_of_the_episode():
    run = Run(Rule(rounds=1), 7, 3)
    run.loop({2: 20.0, 3: 10.0, 4: 9.0}.__getitem__)
    assert run.machine.position == 4
    run.loop({3: 8.0, 4: 10.0, 5: 20.0}.__getitem__)
    assert run.machine.position == 3  # first reversal
    run.loop({2: 20.0, 3: 10.0, 4: 9.5}.__getitem__)  # the second would be to 4
    assert run.machine.mode is Mode.STABLE
    assert run.machine.position == 3  # (10 + 8 + 10) / 3 < (9 + 10 + 9.5) / 3
    assert run.machine.oscillations == 1
    assert run.decisions[-1].outcome is Outcome.OSCILLATION
    assert {p: s.mean for p, s in run.decisions[-1].samples.items()} == {
        2: 20.0,
        3: pytest.approx(28 / 3),
        4: pytest.approx(28.5 / 3),
        5: 20.0,
    }


def test_one_reversal_is_forgiven():
    run = Run(Rule(rounds=1), 7, 3)
    run.loop({2: 20.0, 3: 10.0, 4: 9.0}.__getitem__)
    run.loop({3: 8.0, 4: 10.0, 5: 20.0}.__getitem__)
    run.settle({1: 5.0, 2: 4.0, 3: 6.0, 4: 7.0}.__getitem__)
    assert run.machine.position == 2
    assert run.machine.oscillations == 0


# The loop


@given(st.integers(1, 9), st.integers(3, 8), st.data())
def test_a_loop_is_3n_batches_in_the_order_c_upper_lower(n, height, data):
    c = data.draw(st.integers(1, height - 2))
    run = Run(Rule(rounds=n), height, c)
    assert run.loop(lambda level: 1.0) == [c, c - 1, c + 1] * n
    assert run.machine.mode is Mode.STABLE


@pytest.mark.parametrize(("c", "other"), [(0, 1), (4, 3)])
def test_a_loop_at_a_boundary_is_2n_batches(c, other):
    run = Run(Rule(rounds=4), 5, c)
    assert run.loop(lambda level: 1.0) == [c, other] * 4


def test_a_loop_compares_means_over_all_its_rounds():
    run = Run(Rule(rounds=3), 3, 1)
    times = {0: [1.0, 9.0, 9.0], 1: [2.0, 2.0, 2.0], 2: [1.0, 1.0, 9.0]}
    run.loop(lambda level: times[level].pop(0))
    assert run.decisions[-1].outcome is Outcome.SETTLE
    assert {p: (s.count, s.mean) for p, s in run.decisions[-1].samples.items()} == {
        0: (3, pytest.approx(19 / 3)),
        1: (3, 2.0),
        2: (3, pytest.approx(11 / 3)),
    }


def test_sums_are_cleared_between_loops():
    run = Run(Rule(rounds=2), 5, 2)
    run.loop({1: 9.0, 2: 5.0, 3: 1.0}.__getitem__)
    run.loop({2: 9.0, 3: 4.0, 4: 9.0}.__getitem__)
    assert run.decisions[-1].samples[3].mean == 4.0


# Modes


def test_stable_until_exactly_threshold_updates():
    run = Run(Rule(rounds=1, threshold=10), 3)
    run.settle(lambda level: 1.0)
    run.machine.update(9)
    assert (run.machine.mode, run.machine.updates) == (Mode.STABLE, 9)
    assert run.machine.ask(3) == (1, 0, 0)
    run.machine.update(1)
    assert (run.machine.mode, run.machine.updates) == (Mode.UNSTABLE, 0)
    assert run.machine.transitions == 2


def test_updates_beyond_the_threshold_are_not_carried_over():
    run = Run(Rule(rounds=1, threshold=10), 3)
    run.settle(lambda level: 1.0)
    run.machine.update(25)
    run.settle(lambda level: 1.0)
    assert (run.machine.mode, run.machine.updates) == (Mode.STABLE, 0)


def test_updates_count_in_stable_mode_only():
    run = Run(Rule(rounds=1, threshold=10), 3)
    run.machine.update(9)
    run.settle(lambda level: 1.0)
    run.machine.update(9)
    assert (run.machine.mode, run.machine.updates) == (Mode.STABLE, 9)


def test_a_new_episode_follows_the_minimum_that_moved():
    run = Run(Rule(rounds=2, threshold=10), 7)
    run.settle([7, 6, 5, 4, 5, 6, 7].__getitem__)
    assert run.machine.position == 3
    run.machine.update(10)
    run.settle([9, 8, 7, 6, 5, 4, 5].__getitem__)
    assert run.machine.position == 5


# Stale reports, lost batches, batches at the same time


def test_reports_of_an_earlier_episode_are_ignored():
    run = Run(Rule(rounds=1, threshold=1), 3)
    late = run.machine.ask(3)
    run.settle(lambda level: 1.0)
    assert not run.machine.tell(late[1], late[2], 0.5)
    run.machine.update(1)
    assert not run.machine.tell(late[1], late[2], 0.5)
    assert run.machine.stale_reports == 2
    assert run.loop([9.0, 1.0, 9.0].__getitem__) == [1, 0, 2]


def test_reports_of_a_level_outside_the_loop_are_ignored():
    run = Run(Rule(rounds=1), 7, 3)
    asked = [run.machine.ask(7) for _ in range(6)]
    assert [position for position, *_ in asked] == [3, 2, 4, 3, 2, 4]
    for (_, episode, serial), value in zip(asked[:3], [5.0, 9.0, 1.0], strict=True):
        assert run.machine.tell(episode, serial, value)
    assert run.machine.position == 4
    told = [run.machine.tell(episode, serial, 2.0) for _, episode, serial in asked[3:]]
    assert told == [True, False, True]  # the loop around 4 samples 3 and 4, but not 2


def test_a_report_counts_once():
    run = Run(Rule(rounds=2), 3)
    _, episode, serial = run.machine.ask(3)
    assert run.machine.tell(episode, serial, 1.0)
    assert not run.machine.tell(episode, serial, 1.0)
    assert run.machine.stale_reports == 1


def test_a_serial_of_another_episode_is_stale():
    run = Run(Rule(rounds=2), 3)
    _, episode, serial = run.machine.ask(3)
    assert not run.machine.tell(episode + 1, serial, 1.0)
    assert not run.machine.tell(episode, serial + 1, 1.0)


def test_lost_batches_are_made_up_for():
    run = Run(Rule(rounds=2), 7, 3)
    asked = defaultdict(int)
    for batch in range(1000):
        position, episode, serial = run.machine.ask(7)
        if run.machine.mode is Mode.STABLE:
            break
        asked[position] += 1
        if batch % 3:  # each batch at the centre is lost while all three are sampled
            run.machine.tell(episode, serial, 1.0)
    assert run.machine.mode is Mode.STABLE
    assert asked[2] == asked[4] == 2  # positions with all their samples are passed over


@given(st.integers(2, 20), st.randoms(use_true_random=False))
def test_batches_at_the_same_time_and_out_of_order_settle_at_the_minimum(together, random):
    costs = [9, 8, 7, 5, 3, 4, 6]
    run = Run(Rule(rounds=3), 7)
    under_way = []
    for _ in range(2000):
        if run.machine.mode is Mode.STABLE:
            break
        under_way.append(run.machine.ask(7))
        if len(under_way) == together:
            random.shuffle(under_way)
            position, episode, serial = under_way.pop()
            run.machine.tell(episode, serial, costs[position])
    assert run.machine.mode is Mode.STABLE
    assert run.machine.position == 4


def test_memory_of_lost_batches_is_bounded(monkeypatch):
    monkeypatch.setattr(probing, "REMEMBERED", 5)
    run = Run(Rule(rounds=2), 3)
    asked = [run.machine.ask(3) for _ in range(6)]
    assert not run.machine.tell(*asked[0][1:], 1.0)
    assert run.machine.tell(*asked[1][1:], 1.0)


def test_a_loop_ends_when_the_race_leaves_only_those_with_all_their_samples():
    run = Run(Rule(rounds=8, early_stop=EarlyStop(minimum=4)), 3, 1)
    cost = {0: 100.0, 1: 1.0, 2: 1.0}
    slow = []
    for turn in range(100):
        position, episode, serial = run.machine.ask(3)
        if position == 0 and len(slow) < 20:
            slow.append((episode, serial))
        else:
            run.machine.tell(episode, serial, cost[position] + 0.01 * (turn % 2))
        if len(slow) == 20:
            break
    for episode, serial in slow[:4]:
        run.machine.tell(episode, serial, cost[0] + 0.01 * (serial % 2))
    assert run.machine.mode is Mode.STABLE  # it does not wait for a neighbour that is no longer sampled
    assert run.machine.position in (1, 2)


# Heights


def test_first_episode_starts_in_the_middle():
    assert [Run(Rule(), height).machine.ask(height)[0] for height in range(1, 8)] == [0, 0, 1, 1, 2, 2, 3]


def test_one_level_is_stable_at_once():
    run = Run(Rule(), 1)
    assert run.machine.ask(1) == (0, 0, 0)
    assert run.machine.mode is Mode.STABLE
    assert run.outcomes == [Outcome.PROBE, Outcome.ALONE]


def test_the_search_begins_in_the_middle_when_a_tree_of_one_level_grows():
    run = Run(Rule(rounds=1), 1)
    run.machine.ask(1)
    assert run.machine.ask(5)[0] == 2
    assert run.machine.mode is Mode.UNSTABLE


def test_a_settled_level_stays_and_is_clamped():
    run = Run(Rule(rounds=1), 7)
    run.settle([9, 8, 7, 6, 5, 4, 3].__getitem__)
    assert [run.machine.ask(height)[0] for height in (7, 9, 4, 9)] == [6, 6, 3, 3]
    assert run.machine.mode is Mode.STABLE
    assert run.outcomes[-1] is Outcome.CLAMP


def test_a_changed_height_begins_the_episode_again():
    run = Run(Rule(rounds=2), 7, 5)
    before = [run.machine.ask(7) for _ in range(3)]
    assert run.machine.ask(4)[0] == 3
    assert not any(run.machine.tell(episode, serial, 1.0) for _, episode, serial in before)
    run.height = 4
    assert run.loop(lambda level: 1.0) == [2, 3, 2, 3]  # the 3 asked for above is lost


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds, the samples per position, must be at least 1"),
        ({"threshold": 0}, "threshold must be at least 1"),
        ({"tolerance": -0.1}, "tolerance is a share >= 0"),
        ({"tolerance": float("nan")}, "tolerance is a share >= 0"),
    ],
)
def test_rules_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Rule(**options)
