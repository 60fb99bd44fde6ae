"""The thesis's benchmark: its predicates and events, our stand-in for Siena, and the page."""

import json
from statistics import mean

import pytest

from experiments import __main__ as experiments
from experiments.paper import report
from experiments.paper.papers import NOVAK
from experiments.thesis import claims, printed, results, thesis
from experiments.thesis.contestants import FOUR, LeanCounting, made
from experiments.thesis.workload import ATTRIBUTES, METHODS, SCHEMA, SIZES, equalities, predicates
from rtfilter.predicates.predicate import Predicate

SMALL = ((100, 10), (100, 1), (200, 1), (400, 1))


# -- workload ------------------------------------------------------------------------------------------------


def test_predicates_and_events_are_those_of_the_thesis():
    third = predicates(3)[2]
    assert str(third.filters[0]).startswith("longAttribute0 < 1002 AND longAttribute1 < 11002 AND ")
    assert len(third.filters[0].constraints) == 12
    by_name = {method.name: method.event(1000) for method in METHODS}
    assert [by_name["Match_25"][name] for name in ATTRIBUTES[:3]] == [1750, 11750, 21750]
    assert [by_name["Match2_75"][name] for name in ATTRIBUTES[5:8]] == [0, 61250, 0]
    assert set(by_name["Match_100"].values()) == {0}
    assert len(METHODS) == 13


def test_result_sizes_are_exact():
    """One fewer than the percentage; Match_100 has all."""
    sizes = {
        count: [
            method.matched(count)
            for method in METHODS
            if method.name in ("Match_25", "Match2_50", "Match_75")
        ]
        for count in (1000, 2000, 4000)
    }
    assert sizes == {1000: [249, 749, 499], 2000: [499, 1499, 999], 4000: [999, 2999, 1999]}
    assert [METHODS[-1].matched(count) for count in sizes] == [1000, 2000, 4000]


@pytest.mark.parametrize("count", [4, 100])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_events_satisfy_what_they_should(method, count):
    event, own = method.event(count), predicates(count)
    matched = [one for one in own if one.matches(event)]
    assert len(matched) == method.matched(count)
    constraints = [one for predicate in own for one in predicate.filters[0].constraints]
    assert sum(one.matches(event) for one in constraints) == method.increments(count)
    for predicate in own:
        satisfied = sum(one.matches(event) for one in predicate.filters[0].constraints)
        assert satisfied in ({12, 11} if method.almost else {12, 0})


def test_the_random_order_is_an_order_of_the_same():
    own, shuffled = predicates(50), predicates(50, 1)
    assert own != shuffled
    assert sorted(map(str, own)) == sorted(map(str, shuffled))
    assert shuffled == predicates(50, 1)


def test_equalities_are_of_different_attributes():
    for one in equalities(50, 1):
        assert len({constraint.attribute for constraint in one.filters[0].constraints}) == 3


# -- contestants ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_lean_counting_finds_the_same_with_as_many_increments(method):
    own = predicates(60, 2 if method.shuffled else None)
    event = SCHEMA.read([method.event(60)])
    lean, cam = (made(factory, own).match(event) for factory in (LeanCounting, "shared-counting"))
    assert sorted(lean.ids) == sorted(cam.ids)
    assert lean.visits.tolist() == cam.visits.tolist() == [method.increments(60)]


def test_lean_counting_needs_every_constraint_and_cannot_unsubscribe():
    sources = ("longAttribute0 < 5 AND longAttribute1 < 5", "longAttribute0 < 3")
    lean = made(LeanCounting, [Predicate.parse(source, SCHEMA) for source in sources])
    events = [{"longAttribute0": 2}, {"longAttribute0": 4, "longAttribute1": 4}, {"longAttribute0": 5}]
    hits = lean.match(SCHEMA.read(events))
    assert (hits.ids.tolist(), hits.offsets.tolist(), hits.visits.tolist()) == (
        [1, 0],
        [0, 1, 2, 2],
        [2, 2, 0],
    )
    with pytest.raises(NotImplementedError, match="cannot unsubscribe"):
        lean.remove(lean.ids())


@pytest.mark.parametrize("count", [20, 100])
def test_the_tree_visits_a_chain_and_the_way_to_each_match(count):
    """Sorted, each starts a node below the star of the one before; a match has 11 more, and a leaf."""
    tree = made("matching-tree", predicates(count))
    for method in METHODS:
        if not method.almost and not method.shuffled:
            hits = tree.match(SCHEMA.read([method.event(count)]))
            assert hits.visits.tolist() == [count + 12 * method.matched(count)]
    assert tree.stats()["depth"] == count + 11


# -- printed numbers -----------------------------------------------------------------------------------------


def test_printed_averages_follow_from_the_printed_rows():
    assert list(printed.RATIOS) == list(printed.MILLISECONDS) == [method.name for method in METHODS]
    averages = [mean(column) for column in zip(*printed.RATIOS.values(), strict=True)]
    assert averages == pytest.approx(printed.AVERAGES, abs=0.001)
    assert sum(printed.WINS) == len(METHODS) * len(SIZES)
    rates = [100 / ms[-1] * 1000 for ms in printed.MILLISECONDS.values()]
    assert (min(rates), max(rates)) == pytest.approx((94.5, 699), abs=0.5)


# -- the page ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A folder with a small run, and its rows."""
    folder = tmp_path_factory.mktemp("thesis")
    sizes = {"ci": {"events": 1, "repeats": 1, "costs": (20, 400), "equalities": 60, "switches": 40}}
    with pytest.MonkeyPatch.context() as patch:
        for module in (thesis, results, claims):
            patch.setattr(module, "SIZES", SMALL)
        experiment = thesis.EXPERIMENT._replace(sizes=sizes)
        patch.setattr(thesis, "EXPERIMENT", experiment)
        rows = report.runner.measure(
            experiment, thesis.SETTINGS["less-than"], report.PROFILES["ci"], folder, 1
        )
        written = report.write(folder, folder)
    return folder, rows, written


@pytest.mark.long
@pytest.mark.slow
def test_the_page_has_every_claim_with_its_command(measured):
    folder, _, written = measured
    assert written == [folder / NOVAK.page]
    text = written[0].read_text()
    assert "`python -m experiments thesis --setting less-than --profile ci`" in text
    assert text.count("\n| ") == 2 + 16
    for claim in ("x times as many events", "CAM never wins", "2/3 of the time", "Siena beats CAM"):
        assert claim in text
    assert "lean" in text
    for block in text.split("```text\n")[1:]:
        assert max(map(len, block.partition("```")[0].splitlines())) <= 100


@pytest.mark.long
@pytest.mark.slow
def test_a_run_is_continued(measured, monkeypatch, capsys):
    folder, rows, _ = measured
    kept = json.loads((folder / "thesis-less-than.json").read_text())
    assert kept["complete"]
    assert kept["rows"] == rows
    with pytest.raises(SystemExit):
        experiments.main(["thesis", "--out", str(folder)])  # other sizes than these
    assert "is of another settings (profile)" in capsys.readouterr().err


TIMED = (*FOUR, "stamped", "counting", "R*-tree", "10 and 20")


def of_seconds(seconds):
    """Rows of a whole run in which a function tells the seconds of a contestant, method, and size.

    Of three rounds, the first is twice as fast, and the second slowed by other load.
    """
    rows = [
        {
            "kind": "match", "method": method.name, "predicates": count, "events": events, "times": events,
            "peer": peer, "matched": method.matched(count), "operations": method.increments(count),
        }
        for method in METHODS for count, events in SIZES for peer in TIMED
    ]  # fmt: skip
    rows += [
        {
            "kind": "time", "method": method.name, "predicates": count, "events": events,
            "seconds": {peer: slow * seconds(peer, method, count) * events for peer in TIMED},
        }
        for slow in (0.5, 30.0, 1.0) for method in METHODS for count, events in SIZES
    ]  # fmt: skip
    nodes = {"kind": "cost", "peer": "10 and 20", "predicates": 4000, "nodes": 300}
    return [*rows, nodes, {"kind": "switch"}]


def test_tables_have_what_was_run():
    """A tenth of the events: labels say so, and no time is scaled."""
    rows = [row | {"times": row["events"] // 10} if "times" in row else row for row in of_seconds(
        lambda peer, method, count: 1e-3
    )]  # fmt: skip
    found = results.cells(rows)
    first, third = thesis._first(found), thesis._third(found)
    assert "1000 P, 100 of 1000 U" in first
    assert results.cells(of_seconds(lambda *_: 1e-3))[0].label == "1000 P, 1000 U"
    heads = third.splitlines()[0].split()[5::2]  # of ours, then of the thesis
    assert heads == ["100U", "10U", "10U", "10U", "1000U", "100U", "100U", "100U"]
    (line,) = [line.split() for line in third.splitlines() if line.startswith("Match_25 ")]
    assert line[1:5] == ["1,000", "100", "100", "100"]  # milliseconds of the middle round


def test_all_methods_are_drawn_by_predicates_for_all_contestants():
    figure = thesis.draw(of_seconds(lambda *_: 1e-3), "title")
    drawn = {axes.get_title(): len(axes.get_lines()) for axes in figure.axes}
    assert [drawn[f"{peer}, by predicates"] for peer in FOUR] == [len(METHODS)] * 4


FACTORS = {"MT": 1.0, "CAS": 1.2, "lean": 1.3, "CAM": 1.8}


def in_time(made):
    return {claim.claim: claim.time.verdict for claim in made}


def test_claims_hold_where_times_are_as_the_thesis_has_them():
    def seconds(peer, method, count):
        slow = 1.6 if (peer, method.name) == ("MT", "Match_25") else 1.0
        return FACTORS.get(peer, 1.0) * slow * method.increments(count) ** 1.1 * 2.5e-8

    verdicts = in_time(claims.claims(of_seconds(seconds)))
    judged = [verdict for verdict in verdicts.values() if verdict not in ("does not apply", "observed")]
    assert judged == ["holds"] * 14


def test_claims_fail_where_times_are_otherwise():
    def seconds(peer, method, count):
        return 1e-7 * (2 if peer in ("CAS", "lean") else 1) * (1 + method.satisfied / 100)

    verdicts = in_time(claims.claims(of_seconds(seconds)))
    failed = {claim for claim, verdict in verdicts.items() if verdict == "fails"}
    assert {claim.split(":")[0] for claim in failed} == {
        "counting takes time by satisfied constraints, not by matches",
        "counting takes as long where more predicates match, but as many constraints are satisfied",
        "counting takes longer where more constraints are satisfied",
        "of the others, CAS is faster than Siena, and Siena faster than CAM",
        "counters in the filters take less time than counters in a map",
        "the tree loses its lead where predicates come sorted and few match",
        "the tree takes longer where predicates come sorted and few match",
        "counters in the filters take 2/3 of the time of counters in a map",
        "leaner structures make counting faster",
        "CAM filters 100 to 1,000 events a second with 4,000 predicates",
        "twice the predicates take more than twice the time",
    }


def test_sizes_are_compared_within_a_round():
    rows = of_seconds(lambda peer, method, count: 1e-3)
    times = results.of(rows, "time")
    for place, row in enumerate(times):
        row["seconds"] = {peer: (1 + place % 7) * time for peer, time in row["seconds"].items()}
    rounds = [
        row["seconds"]["CAM"] for row in times if row["method"] == "Match_25" and row["predicates"] == 1000
    ]
    pairs = [rounds[0::2], rounds[1::2]]
    assert results.growth(results.cells(rows), SIZES[0], SIZES[1], "CAM")["Match_25"] == pytest.approx(
        sorted(one / other for one, other in zip(*pairs, strict=True))[1]
    )


def test_there_are_no_claims_of_a_part():
    assert claims.claims([]) == []
