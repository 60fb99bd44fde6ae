"""adaptive.replay: a log holds all inputs and decisions, and replaying it gives the same ones."""

import pytest

from rtfilter.adaptive import LevelController, PlanController, ReplayError, Report, Shape, replay


def recorded(kind=LevelController):
    log = []
    controller = kind(rounds=2, threshold=10, seed=None, log=log.append)
    for batch in range(60):
        ticket = controller.plan(64, Shape(7))
        controller.report(ticket, Report(1.0 + abs(ticket.plan.level - 5), 64))
        controller.on_update(batch % 3)
    return log


def test_log_holds_inputs_then_the_decisions_they_caused():
    log = recorded()
    assert [entry["kind"] for entry in log[:4]] == ["plan", "decision", "report", "update"]
    assert log[0] == {
        "kind": "plan",
        "size": 64,
        "height": 7,
        "boxes": 0,
        "packed": 0,
        "level": 3,
        "group": 1,
        "size_class": 64,
        "episode": 1,
        "serial": 1,
    }
    first_move = next(entry for entry in log if entry.get("outcome") == "move")
    assert first_move == {
        "kind": "decision",
        "size_class": 64,
        "outcome": "move",
        "level": 4,
        "group": 1,
        "from_level": 3,
        "from_group": 1,
        "anomaly": False,
        "samples": [
            {"level": 3, "group": 1, "count": 2, "mean": 3.0, "given_up": 0, "lost": 0},
            {"level": 2, "group": 1, "count": 2, "mean": 4.0, "given_up": 0, "lost": 0},
            {"level": 4, "group": 1, "count": 2, "mean": 2.0, "given_up": 0, "lost": 0},
        ],
    }


def test_log_shows_every_kind_of_decision_of_an_ordinary_run():
    outcomes = [entry["outcome"] for entry in recorded() if entry["kind"] == "decision"]
    assert outcomes[:4] == ["probe", "move", "move", "settle"]
    assert outcomes[4] == "probe"  # updates reached the threshold


@pytest.mark.parametrize("kind", [LevelController, PlanController])
def test_replay_restores_the_state_and_the_sink(kind):
    log, later = recorded(kind), []
    again = kind(rounds=2, threshold=10, seed=None, log=later.append)
    replay(log, again)
    assert later == []
    again.plan(64, Shape(7))
    assert [entry["kind"] for entry in later] == ["plan"]


def test_replay_names_the_line_that_differs():
    log = recorded()
    line = next(k for k, entry in enumerate(log) if entry["kind"] == "plan" and entry["serial"] == 3)
    log[line] = {**log[line], "level": 0}
    with pytest.raises(
        ReplayError, match=f"differs at line {line}: recorded .*'level': 0.*repeated .*'level': 4"
    ):
        replay(log, LevelController(rounds=2, threshold=10, seed=None))


def test_replay_notices_other_parameters():
    with pytest.raises(ReplayError):
        replay(recorded(), LevelController(rounds=3, threshold=10, seed=None))


def test_replay_notices_a_missing_decision():
    log = recorded()
    while log[-1]["kind"] != "decision":
        log.pop()
    with pytest.raises(ReplayError, match=f"line {len(log) - 1}: recorded None"):
        replay(log[:-1], LevelController(rounds=2, threshold=10, seed=None))
