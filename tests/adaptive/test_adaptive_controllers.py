"""adaptive.controllers: tests of all controllers, then of each."""

import doctest
import json
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from rtfilter import adaptive
from rtfilter.adaptive import (
    CostController,
    EarlyStop,
    FixedPlan,
    LevelController,
    Plan,
    PlanController,
    Report,
    Shape,
    Ticket,
    WangController,
    exact,
    powers_of_two,
    replay,
)

SMALL = {"rounds": 3, "threshold": 5}
PAPER = {"share": None, "drift": False, "seed": None, "size_class": exact}
STOP = EarlyStop(minimum=2)
CONTROLLERS = {
    "fixed": lambda log=None: FixedPlan(3, 16, log=log),
    "cost": lambda log=None: CostController(log=log),
    "wang": lambda log=None: WangController(**SMALL, log=log),
    "level": lambda log=None: LevelController(**SMALL, log=log),
    "level-strict": lambda log=None: LevelController(**SMALL, tolerance=None, log=log),
    "level-paper": lambda log=None: LevelController(**SMALL, **PAPER, log=log),
    "level-exact": lambda log=None: LevelController(**SMALL, size_class=exact, group=None, log=log),
    "level-early": lambda log=None: LevelController(**SMALL, early_stop=STOP, log=log),
    "plan": lambda log=None: PlanController(**SMALL, log=log),
    "plan-strict": lambda log=None: PlanController(**SMALL, tolerance=None, log=log),
    "plan-early": lambda log=None: PlanController(**SMALL, early_stop=STOP, groups=(2, 8), log=log),
}
every = pytest.mark.parametrize("make", CONTROLLERS.values(), ids=CONTROLLERS.keys())
TUNING = [name for name in CONTROLLERS if name not in ("fixed", "cost", "wang")]
tuning = pytest.mark.parametrize("make", [CONTROLLERS[name] for name in TUNING], ids=TUNING)

sizes = st.sampled_from([1, 2, 3, 5, 64, 100, 127])
commands = st.lists(
    st.one_of(
        st.tuples(st.just("plan"), sizes, st.integers(1, 5)),
        st.tuples(st.just("burst"), sizes, st.integers(1, 3)),
        st.tuples(st.just("report"), st.integers(0, 50), st.floats(0, 10)),
        st.tuples(st.just("give up"), st.integers(0, 50), st.floats(0, 10)),
        st.tuples(st.just("drop"), st.integers(0, 50), st.none()),
        st.tuples(st.just("update"), st.integers(0, 6), st.none()),
    ),
    max_size=60,
)


def drive(controller, script):
    """Carry out drawn commands; yields (size, height, ticket) of each plan. A report may come twice."""
    tickets = []
    for command, number, other in script:
        match command:
            case "plan":
                tickets.append(controller.plan(number, Shape(other, 8, packed=number % 2)))
                yield number, other, tickets[-1]
            case "burst":  # sequential batches, so that loops end often
                for _ in range(12):
                    ticket = controller.plan(number, Shape(other))
                    yield number, other, ticket
                    controller.report(ticket, Report(1.0 + 0.1 * ticket.plan.level, number))
            case "report" if tickets:
                controller.report(tickets[number % len(tickets)], Report(other, 64))
            case "give up" if tickets:
                controller.report(tickets[number % len(tickets)], Report(other, 64, unfinished=60))
            case "drop" if tickets:
                controller.drop(tickets[number % len(tickets)])
            case "update":
                controller.on_update(number)


def test_the_example_of_the_package_runs():
    assert doctest.testmod(adaptive).failed == 0


# All controllers


@pytest.mark.slow
@every
@given(script=commands)
def test_plans_are_always_possible(make, script):
    for size, height, ticket in drive(make(), script):
        assert 0 <= ticket.plan.level < height
        assert 1 <= ticket.size_class <= size
        assert ticket.plan.group is None or ticket.plan.group >= 1


@pytest.mark.slow
@every
@given(script=commands)
def test_the_log_replays_also_from_json(make, script):
    log = []
    controller = make(log.append)
    for _ in drive(controller, script):
        pass
    again = make()
    replay([json.loads(json.dumps(entry, allow_nan=False)) for entry in log], again)
    assert again.snapshot() == controller.snapshot()


@pytest.mark.slow
@every
@given(script=commands)
def test_snapshots_survive_json_and_change_nothing(make, script):
    watched, alone = make(), make()
    plans = [ticket for *_, ticket in drive(alone, script)]
    for (*_, ticket), expected in zip(drive(watched, script), plans, strict=True):
        assert ticket == expected
        snapshot = watched.snapshot()
        assert json.loads(json.dumps(snapshot, allow_nan=False)) == snapshot


@tuning
@settings(max_examples=30)
@given(script=commands, size=st.sampled_from([2, 64]), height=st.integers(1, 5))
def test_whatever_happened_before_it_settles_again(make, script, size, height):
    controller = make()
    for _ in drive(controller, script):
        pass
    for _ in range(5 * 3 * 40):  # members x rounds x more loops than an episode can have
        ticket = controller.plan(size, Shape(height))
        if not ticket.episode:
            break
        controller.report(ticket, Report(1.0, 64))
    assert ticket.episode == 0
    assert controller.snapshot()["classes"][str(ticket.size_class)]["mode"] == "STABLE"


@tuning
def test_a_dropped_batch_says_nothing_of_its_plan(make):
    controller, alone = make(), make()
    for turn in range(400):
        cost = 1.0 + 0.1 * (turn % 3)
        alone.report(alone.plan(64, Shape(4)), Report(cost, 64))
        controller.report(controller.plan(64, Shape(4)), Report(cost, 64))
    before = controller.snapshot()
    for _ in range(1000):  # more than any controller waits for
        controller.drop(controller.plan(64, Shape(4)))
    after = controller.snapshot()
    assert after["stale_reports"] == before["stale_reports"]
    best = [snapshot["classes"]["64"]["level"] for snapshot in (before, after, alone.snapshot())]
    assert best[0] == best[1] == best[2]
    lost = [s.get("lost_batches", 0) + s["classes"]["64"].get("lost", 0) for s in (before, after)]
    assert lost == [0, 0]


@every
def test_a_dropped_batch_is_not_waited_for(make):
    controller = make()
    ticket = controller.plan(64, Shape(4))
    controller.drop(ticket)
    controller.drop(ticket)
    before = controller.snapshot()["classes"].get("64", {})
    controller.report(ticket, Report(1.0, 64))
    after = controller.snapshot()["classes"].get("64", {})
    assert after == before | {key: after[key] for key in ("stale_reports",) if key in after}


@pytest.mark.slow
@tuning
@given(script=commands)
def test_batches_of_other_classes_change_nothing(make, script):
    others = {100, 127}  # of one class with 64
    told = {"report", "give up", "drop"}
    mixed = [step for step in script if step[0] not in told and step[1] not in others]
    alone = [step for step in mixed if step[0] == "update" or step[1] == 64]
    among = [ticket for size, _, ticket in drive(make(), mixed) if size == 64]
    assert among == [ticket for *_, ticket in drive(make(), alone)]


@tuning
def test_a_batch_of_one_bypasses_at_level_0(make):
    controller = make()
    ticket = controller.plan(1, Shape(7))
    controller.report(ticket, Report(1.0, 64))
    assert ticket == Ticket(Plan(0, 1), 1)
    assert controller.snapshot()["classes"] == {}


@tuning
def test_a_report_of_a_class_never_planned_is_stale(make):
    controller = make()
    controller.report(Ticket(Plan(2, 1), 64, episode=1, serial=1), Report(1.0, 64))
    assert controller.snapshot()["stale_reports"] == 1


@tuning
def test_reports_in_stable_mode_teach_nothing_and_are_not_stale(make):
    controller = make()
    while (ticket := controller.plan(64, Shape(5))).episode:
        controller.report(ticket, Report(1.0, 64))
    before = controller.snapshot()
    controller.report(ticket, Report(100.0, 64))
    assert controller.snapshot() == before


@every
@cases("bad", [float("nan"), float("inf"), -1.0])
def test_bad_response_times_are_refused_and_change_nothing(make, bad):
    log = []
    controller = make(log.append)
    ticket = controller.plan(64, Shape(5))
    before = controller.snapshot(), list(log)
    with pytest.raises(ValueError, match="mean_response is finite and not negative"):
        controller.report(ticket, Report(bad, 64))
    assert (controller.snapshot(), log) == before


@every
@cases(
    ("call", "message"),
    [
        (lambda c: c.plan(0, Shape(5)), "size must be at least 1"),
        (lambda c: c.plan(64, Shape(0)), "height must be at least 1"),
        (lambda c: c.on_update(-1), "cannot be negative"),
    ],
)
def test_bad_input_is_refused(make, call, message):
    with pytest.raises(ValueError, match=message):
        call(make())


@every
def test_what_was_given_before_there_were_shapes_and_reports_is_refused(make):
    controller = make()
    with pytest.raises(TypeError, match=r"such as Shape\(height=2\); got 4"):
        controller.plan(64, 4)
    ticket = controller.plan(64, Shape(4))
    before = controller.snapshot()
    with pytest.raises(TypeError, match=r"such as Report\(mean_response, size\); got 0\.5"):
        controller.report(ticket, 0.5)
    assert controller.snapshot() == before


@every
def test_numpy_integers_are_welcome(make):
    log = []
    controller = make(log.append)
    controller.report(controller.plan(np.int64(64), Shape(np.int32(5))), Report(np.float32(1.5), 64))
    controller.on_update(np.int64(3))
    json.dumps(log)
    json.dumps(controller.snapshot())


# FixedPlan


def test_fixed_plan_is_clamped_to_the_height():
    controller = FixedPlan(3, None)
    assert [controller.plan(64, Shape(height)).plan for height in (1, 3, 4, 9)] == [
        Plan(0, None),
        Plan(2, None),
        Plan(3, None),
        Plan(3, None),
    ]


# LevelController


def run(controller, cost, size, height, noise=None):
    """Until STABLE; returns the last plan and the number of batches."""
    for batch in range(20_000):
        ticket = controller.plan(size, Shape(height))
        if not ticket.episode:
            return ticket.plan, batch
        response = cost(ticket.plan) * (1.0 if noise is None else noise[batch])
        controller.report(ticket, Report(response, size))
    raise AssertionError("does not settle")


def test_level_controller_keeps_its_group():
    plan, _ = run(LevelController(rounds=1, group=4), lambda plan: 1.0 + abs(plan.level - 4), 64, 7)
    assert plan == Plan(4, 4)


def test_classes_settle_at_their_own_levels():
    controller = LevelController(rounds=1)
    assert run(controller, lambda plan: 1.0 + abs(plan.level - 1), 4, 7)[0].level == 1
    assert run(controller, lambda plan: 1.0 + abs(plan.level - 5), 64, 7)[0].level == 5
    assert controller.plan(7, Shape(7)).plan.level == 1
    assert {label: state["level"] for label, state in controller.snapshot()["classes"].items()} == {
        "4": 1,
        "64": 5,
    }


def test_each_class_counts_the_updates_it_saw_while_stable():
    controller = LevelController(rounds=1, threshold=10)
    run(controller, lambda plan: 1.0, 4, 7)
    controller.on_update(6)
    run(controller, lambda plan: 1.0, 64, 7)
    controller.on_update(6)
    modes = {label: (s["mode"], s["updates"]) for label, s in controller.snapshot()["classes"].items()}
    assert modes == {"4": ("UNSTABLE", 0), "64": ("STABLE", 6)}


def test_exact_classes_keep_every_size_apart():
    controller = LevelController(size_class=exact)
    assert [controller.plan(size, Shape(7)).size_class for size in (64, 65, 66)] == [64, 65, 66]


def test_a_size_class_must_name_its_smallest_size():
    controller = LevelController(size_class=lambda size: size + 1)
    with pytest.raises(ValueError, match="smallest size of a class: 64 -> 65"):
        controller.plan(64, Shape(7))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "seeds"), [((1, 64), 60), pytest.param((1, 4, 16, 64), 300, marks=pytest.mark.long)]
)
def test_mean_regret_decreases_with_n_under_noise(rounds, seeds):
    """On gains by level as measured at 250,000 boxes, under 50 % log-normal noise; it starts at 3, best is 4.

    Measured with 300 seeds: mean regret 5.1 %, 3.5 %, 1.9 %, 1.2 % for N = 1, 4, 16, 64.
    """
    gain = (0.00, 0.26, 0.36, 0.39, 0.40, 0.29, -0.18)
    sigma = np.log1p(0.25) ** 0.5
    regrets = []
    for n in rounds:
        ends = []
        for seed in range(seeds):
            noise = np.exp(sigma * np.random.default_rng(seed).standard_normal(4000) - sigma**2 / 2)
            ends.append(run(LevelController(rounds=n), lambda plan: 1 - gain[plan.level], 64, 7, noise)[0])
        regrets.append(statistics.fmean((1 - gain[plan.level]) / (1 - gain[4]) - 1 for plan in ends))
    assert regrets == sorted(regrets, reverse=True)
    assert regrets[0] > 2 * regrets[-1]
    assert regrets[-1] < 0.02


# PlanController


@cases(
    ("size", "height", "first"),
    [
        (2, 7, Plan(3, 1)),
        (4, 7, Plan(3, 1)),
        (5, 7, Plan(3, 1)),
        (8, 7, Plan(3, 4)),
        (64, 6, Plan(2, 16)),
        (300, 6, Plan(2, 16)),
        (1000, 3, Plan(1, 64)),
        (1024, 2, Plan(0, 64)),
        (100_000, 1, Plan(0, 256)),
    ],
)
def test_the_first_plan_is_the_middle_level_and_about_twice_the_root_of_the_batch(size, height, first):
    assert PlanController(seed=None).plan(size, Shape(height)).plan == first


def test_the_first_loop_goes_round_the_plan_and_its_neighbours():
    controller = PlanController(rounds=2, seed=None)
    asked = []
    for _ in range(10):
        ticket = controller.plan(64, Shape(7))
        asked.append(ticket.plan)
        controller.report(ticket, Report(1.0, 64))
    around = [Plan(3, 16), Plan(2, 16), Plan(4, 16), Plan(3, 4), Plan(3, None)]
    assert asked == around * 2
    assert controller.plan(64, Shape(7)).episode == 0


@given(
    st.integers(0, 6),
    st.sampled_from([1, 4, 16, 64, None]),
    st.sampled_from([None, STOP]),
    st.sampled_from([None, 0.0]),
)
def test_it_finds_the_best_level_and_group(level, group, stop, tolerance):
    ladder = [1, 4, 16, 64, None]

    def cost(plan):
        return 1.0 + abs(plan.level - level) + abs(ladder.index(plan.group) - ladder.index(group))

    plan, _ = run(PlanController(rounds=2, early_stop=stop, tolerance=tolerance), cost, 128, 7)
    assert plan == Plan(level, group)


@pytest.mark.slow
def test_it_settles_near_the_best_measured_plan():
    """On mean responses as measured for bursts of 1000 on 1,000,000 wide boxes, under 5 % noise.

    A controller that settled at the centre of its last loop, although a neighbour was better, would end 2 %
    above the best.
    """
    measured = {  # milliseconds by level and group
        0: {1: 38.6, 4: 31.2, 16: 26.9, 64: 24.5, 256: 26.6, None: 28.3},
        1: {1: 37.3, 4: 30.0, 16: 25.9, 64: 23.7, 256: 25.6, None: 27.9},
        2: {1: 35.1, 4: 28.9, 16: 25.4, 64: 23.2, 256: 25.5, None: 28.2},
    }
    sigma, regrets = np.log1p(0.05**2) ** 0.5, []
    for seed in range(100):
        noise = np.exp(sigma * np.random.default_rng(seed).standard_normal(4000) - sigma**2 / 2)
        controller = PlanController(rounds=16)
        plan, _ = run(controller, lambda plan: measured[plan.level][plan.group], 1000, 3, noise)
        regrets.append(measured[plan.level][plan.group] / 23.2 - 1)
    assert statistics.fmean(regrets) < 0.005
    assert max(regrets) < 0.05


def test_groups_stay_below_the_sizes_of_the_class():
    controller = PlanController(rounds=1)
    plans = set()
    while (ticket := controller.plan(31, Shape(3))).episode:
        plans.add(ticket.plan.group)
        controller.report(ticket, Report(1.0 / (ticket.plan.group or 1000), 31))
    assert plans == {4, None, 1}  # class 16..31: 16 is not below every size of it


def test_a_tree_of_one_level_still_has_groups_to_choose_from():
    plan, batches = run(PlanController(rounds=1), lambda plan: float(plan.group or 1000), 64, 1)
    assert plan == Plan(0, 1)
    assert batches > 0


def test_it_settles_under_noise_where_all_plans_are_equal():
    for seed in range(50):
        noise = 1 + np.random.default_rng(seed).random(20_000)
        controller = PlanController(rounds=2, tolerance=None)
        _, batches = run(controller, lambda plan: 1.0, 4096, 9, noise)
        assert batches <= 5 * 2 * 3 * (9 + 7)


@pytest.mark.parametrize("groups", [(4, 1), (1, 1), (0, 4)])
def test_the_ladder_of_groups_is_checked(groups):
    with pytest.raises(ValueError, match="strictly increasing sizes"):
        PlanController(groups=groups)


def test_default_classes_are_powers_of_two():
    assert (
        PlanController().plan(100, Shape(5)).size_class
        == LevelController().plan(100, Shape(5)).size_class
        == powers_of_two(100)
    )
