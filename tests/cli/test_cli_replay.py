"""Replays on the command line: what is refused before they begin, and what an interrupt leaves."""

import csv
import json
import socket
from pathlib import Path

import pytest

from rtfilter.cli import _parser, main, replay
from rtfilter.replay import run
from rtfilter.replay.workloads.workload_registry import BOXES, MODULES, WORKLOADS

DEFINED = (
    '{"schema": {"price": "float"}, "matcher": "filter-nodes", "controller": {"name": "wang", "rounds": 2}}'
)
QUICK = ["--subscriptions", "50", "--bursts", "6", "--sizes", "4", "--insert", "3", "--delete", "3"]


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("subs.jsonl").write_text('"price < 10"\n')
    Path("events.jsonl").write_text('{"price": 1.5}\n')
    Path("schema.json").write_text('{"price": "float"}')


def fails(capsys, *arguments):
    assert main(["replay", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("given", ["events.jsonl", "--schema=schema.json"])
def test_a_file_beside_a_named_workload_is_refused(capsys, given):
    said = fails(capsys, "flights", given)
    file = given.removeprefix("--schema=")
    assert f"the workload 'flights' has events and a schema of its own; leave out '{file}'" in said
    assert "./flights" in said


def test_what_files_cannot_have_is_refused(capsys):
    files = ["subs.jsonl", "events.jsonl"]
    assert "--dimensions is for workloads of boxes" in fails(capsys, *files, "--dimensions", "3")
    assert main(["index", "build", "subs.jsonl", "--schema", "schema.json", "--out", "index"]) == 0
    assert "leave out --schema" in fails(capsys, "index", "events.jsonl", "--schema", "schema.json")


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupt the run of a burst, by its number."""

    def install(burst):
        original, seen = run._run, []

        def stopping(*arguments):
            seen.append(arguments)
            if len(seen) > burst:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(run, "_run", stopping)

    return install


@pytest.mark.slow
def test_an_interrupted_replay_writes_what_it_has(capsys, interrupted):
    interrupted(4)
    given = ["--json", "o.json", "--csv", "o.csv", "--log", "o.log", "--figure", "o.svg"]
    assert main(["replay", "wide", *QUICK, *given]) == 130
    captured = capsys.readouterr()
    assert (
        "wide: 50 subscriptions, matcher rtree, 12 dimensions, height 1; interrupted after 4 of 6 bursts, "
        in captured.out
    )
    assert "24 updates; 4 events checked" in captured.out
    assert captured.err.splitlines()[-1] == "rtfilter: interrupted"
    assert "Traceback" not in captured.err
    report = json.loads(Path("o.json").read_text())
    assert [row["burst"] for row in report["rows"]] == [0, 1, 2, 3]
    assert report["summary"][0]["bursts"] == 4
    assert report["summary"][0]["settled_us"] > 0
    with open("o.csv", newline="") as file:
        assert [row["burst"] for row in csv.DictReader(file)] == list("0123")
    assert Path("o.log").exists()
    assert "<svg" in Path("o.svg").read_text()


def test_a_replay_that_is_interrupted_in_its_first_burst_writes_nothing(capsys, interrupted):
    interrupted(0)
    assert main(["replay", "wide", *QUICK, "--json", "o.json"]) == 130
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "rtfilter: interrupted\n")
    assert not Path("o.json").exists()


@pytest.mark.parametrize("name", ["cost", "wang", "level", "plan"])
def test_each_controller_can_be_replayed(name, capsys):
    tuning = [] if name == "cost" else ["--rounds", "1", "--threshold", "5"]
    assert (
        main(["replay", "wide", *QUICK, "--controller", name, *tuning, "--json", "o.json", "--log", "o.log"])
        == 0
    )
    (first, *_) = map(json.loads, Path("o.log").read_text().splitlines())
    assert first["kind"] == "plan"
    assert json.loads(Path("o.json").read_text())["summary"][0]["contender"] == "adaptive"


@pytest.mark.parametrize(
    ("given", "matcher", "controller"),
    [
        (["wide", *QUICK, "--matcher", "counting", "--controller", "wang"], "counting", "WangController"),
        (
            ["subs.jsonl", "events.jsonl", "--bursts", "2", "--sizes", "4", "--schema", DEFINED],
            "filter-nodes",
            "WangController",
        ),
        (
            ["wide", *QUICK, "--controller", '{"name": "wang", "rounds": 2}', "--threshold", "9"],
            "rtree",
            "WangController",
        ),
    ],
)
def test_the_systems_of_the_papers_can_be_replayed(given, matcher, controller, capsys):
    assert main(["replay", *given, "--json", "o.json"]) == 0
    said = json.loads(Path("o.json").read_text())
    assert said["index"]["matcher"]["name"] == matcher
    assert f", matcher {matcher}, " in capsys.readouterr().out
    (shown,) = said["controllers"].values()
    assert (shown["controller"], shown["rounds"]) == (controller, 2 if matcher != "counting" else 16)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--matcher", "tree"], "unknown matcher 'tree'; choose one of scan"),
        (
            ["--matcher", "counting", "--rtree-every", "2"],
            "--rtree-every compares trees; leave out --matcher",
        ),
        (["--controller", "valley"], "unknown controller 'valley'; choose one of cost"),
        (["--level", "1"], "a fixed --level needs a fixed --group too"),
        (["--controller", "wang", "--group", "4"], "--controller wang chooses itself"),
        (["--controller", "level", "--level", "1", "--group", "4"], "--controller level chooses itself"),
        (["--rounds", "4"], "tune a search: give --controller wang, level or plan"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_options_that_do_not_go_together_are_refused(given, said, capsys):
    assert said in fails(capsys, "wide", *QUICK, *given)


def test_a_whole_replay_says_how_many_bursts_it_had(capsys):
    assert main(["replay", "wide", *QUICK]) == 0
    assert "; 6 bursts, " in capsys.readouterr().out


def test_a_port_that_is_taken_or_none_is_said(capsys):
    with socket.create_server(("", 0)) as taken:
        number = taken.getsockname()[1]
        said = fails(capsys, "wide", *QUICK, "--metrics-port", str(number))
    assert said.endswith(f":{number} (Address already in use); choose another port\n")
    assert "'70000' is no port, 0 to 65535" in fails(capsys, "wide", *QUICK, "--metrics-port", "70000")
    assert "'-1' is no port, 0 to 65535" in fails(capsys, "wide", *QUICK, "--metrics-port=-1")


def test_the_help_names_all_workloads_and_only_those():
    assert (tuple(BOXES), tuple(MODULES)) == (replay.RANDOM, (*replay.OTHERS, *replay.REAL))
    (commands,) = (action for action in _parser()._actions if action.dest == "command")
    lines = commands.choices["replay"].description.splitlines()
    assert max(map(len, lines)) <= 110
    assert all(any(name in line for line in lines) for name in WORKLOADS)
