"""What the commands of brokers do beside their brokers."""

import asyncio
import gc
from threading import Event

import pytest

from rtfilter.cli import broker, main
from rtfilter.overlay.membership import Contact
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.broker_settings import POINT
from rtfilter.overlay.running.client_messages import Description
from rtfilter.overlay.running.map import Survey
from rtfilter.overlay.strategies import STRATEGIES
from rtfilter.store.broker_store import BrokerStore
from rtfilter.store.database import engine


@pytest.mark.parametrize("action", ["run", "switch"])
def test_help_names_all_strategies(action, capsys):
    assert main(["broker", action, "--help"]) == 0
    assert ", ".join(STRATEGIES) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["tree.xyz", "tree", ".png"])
def test_a_picture_of_no_known_kind_is_refused_before_anybody_is_asked(name, tmp_path, capsys):
    (tmp_path / "tree.png").write_text("former")
    told = ["--at", "127.0.0.1:9", "--key", str(tmp_path / "no.key")]
    assert main(["broker", "map", *told, "--out", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert said == f"rtfilter: error: {tmp_path / name}: a picture is a .png, .svg or .pdf\n"
    assert (tmp_path / "tree.png").read_text() == "former"


def test_a_map_without_a_root_says_so(tmp_path, capsys, monkeypatch):
    known = [Contact(name, name, f"at {name}") for name in "ab"]
    router = {"entries": 0, "strategy": "hybrid"}
    told = Description(known[1], "b", (known[1],), "", (), False, {"router": router})

    async def survey(address, key):
        return Survey({"b": told}, {"a": known[0]})

    monkeypatch.setattr("rtfilter.overlay.running.map.survey", survey)
    Key.new().write(tmp_path / "network.key")
    assert main(["broker", "map", "--at", "127.0.0.1:9", "--key", str(tmp_path / "network.key")]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if "cut off" in line] == ["a  (cut off)", "b  (cut off)"]
    assert err == "rtfilter: no designated broker of the root answers now; try again soon\n"


OWNERS = {"bonn": "broker bonn", POINT: "the rendezvous point"}


@pytest.mark.parametrize("owner", OWNERS)
def test_nobody_starts_in_the_folder_of_another_one(owner, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rtfilter.basics.sockets.make_room", lambda connections: 0)
    monkeypatch.delenv("RTFILTER_DATABASE", raising=False)
    database = engine(f"sqlite:///{tmp_path}/broker.sqlite")
    BrokerStore(database, owner)
    database.dispose()
    Key.new().write(tmp_path / "network.key")
    (tmp_path / "types.json").write_text('{"trades": {"x": "float"}}')
    told = ["--key", str(tmp_path / "network.key"), "--data", str(tmp_path)]
    action = ["run", "--name", "zzz", "--schema", str(tmp_path / "types.json"), "--rendezvous", "127.0.0.1:9"]
    others = {"broker zzz": action} | ({"the rendezvous point": ["rendezvous"]} if owner != POINT else {})
    for other, action in others.items():
        assert main(["broker", *action, *told]) == 2
        said = capsys.readouterr().err
        owned = f"--data {tmp_path} is the folder of {OWNERS[owner]}; give {other} one of its own"
        assert said == f"rtfilter: error: {owned}\n"


def test_reading_events_may_be_given_up_while_it_waits_for_input():
    given_up, read_on = Event(), Event()

    def frames():
        yield 1
        given_up.wait(60)
        yield 2
        read_on.set()

    async def first():
        async for frame in broker._read_beside(frames()):
            return frame

    assert asyncio.run(first()) == 1
    given_up.set()
    assert read_on.wait(60)
    gc.collect()  # what nobody has waited for would be told of here
