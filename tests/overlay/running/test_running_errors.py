"""After an error of the program, a process ends with its traceback, or lets go whoever has brought it."""

import asyncio
import socket

import pytest

from rtfilter.events.schema import Schema
from rtfilter.overlay.membership.contacts import Standing
from rtfilter.overlay.running import broker_process
from rtfilter.overlay.running.broker_client import BrokerClient, BrokerRefusedError
from rtfilter.overlay.running.broker_frames import LinkError
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.broker_metrics import BrokerMetrics
from rtfilter.overlay.running.broker_process import BrokerProcess
from rtfilter.overlay.running.broker_settings import BrokerSettings, BrokerSettingsError
from rtfilter.overlay.running.publications import ClientWork
from rtfilter.store.log import TakenError

KEY = Key.new()


@pytest.fixture(autouse=True)
def cold(monkeypatch):
    """Brokers do not load all that they need before they begin, which takes a second."""
    monkeypatch.setattr(broker_process, "_warm", lambda: None, raising=False)


class Store:
    incarnation, error = 1, None

    def memory(self):
        return None

    def subscriptions(self):
        return []

    def publications(self):
        return []

    def commit(self, changes):
        if self.error is not None:
            raise self.error


def broken(*given):
    raise KeyError("nothing has this key")


async def ran(folder, change, visit=None, **more):
    """Run a broker that something is changed of, until a visit ends; returns its exit status."""
    settings = BrokerSettings(
        key=folder, data=folder, schema=str(folder), name="a", rendezvous="127.0.0.1:9", heartbeat=0.1, **more
    )
    process = BrokerProcess(settings, {"trade": Schema({"x": float})}, KEY, Store(), "127.0.0.1:9")
    change(process)
    visits = []

    async def visited(address):
        try:
            await visit(address)
        finally:
            process.end()

    with socket.create_server(("127.0.0.1", 0)) as bound:
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        begin = (lambda: visits.append(asyncio.create_task(visited(address)))) if visit else (lambda: None)
        status = await asyncio.wait_for(process.run(bound, begin), 120)
        await asyncio.gather(*visits)
        return status


BROKEN = {
    "a tick of the broker": lambda process: setattr(process.broker, "tick", broken),
    "a tick of its clients": lambda process: setattr(process.clients, "tick", broken),
    "what is kept": lambda process: setattr(process, "_term_kept", broken),
    "what ends": lambda process: process.broken(KeyError("nothing has this key")),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_an_error_of_its_own_ends_a_process_with_its_traceback(change, tmp_path, caplog):
    assert asyncio.run(ran(tmp_path, change)) == 1
    (record,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
    assert isinstance(record.exc_info[1], KeyError)
    assert "start it again" in record.message


def test_who_has_lost_its_database_to_another_process_says_so_without_a_traceback(tmp_path, caplog):
    taken = TakenError("another process has started the broker a")
    assert asyncio.run(ran(tmp_path, lambda process: setattr(process.store, "error", taken))) == 1
    (record,) = [one for one in caplog.records if one.levelname == "CRITICAL"]
    assert record.message == "the process ends: another process has started the broker a"
    assert not record.exc_info


def test_who_sends_a_datagram_after_which_there_is_an_error_is_let_go(tmp_path, caplog):
    dropped = []

    def change(process):
        process.broker.receive = broken
        process.board.drop = lambda *given: dropped.append(given)
        process._hear_datagram("b", None)
        process.end()

    assert asyncio.run(ran(tmp_path, change)) == 0
    assert dropped == [("b", "an error of this broker; see its log")]
    assert "nothing has this key" in caplog.text


def test_a_client_for_which_there_is_no_room_is_told(tmp_path):
    async def visit(address):
        async with BrokerClient([address], "ann", KEY):
            with pytest.raises(LinkError, match="has 1 clients, as many as it takes; connect to another one"):
                async with BrokerClient([address], "bob", KEY):
                    pass

    def change(process):
        process.clients.limits = process.clients.limits._replace(clients=1)

    assert asyncio.run(ran(tmp_path, change, visit)) == 0


@pytest.mark.parametrize("name", ["", "a" * 101, "a\0"], ids=["empty", "long", "zero"])
def test_a_name_that_no_broker_takes_is_refused_at_once(name):
    with pytest.raises(ValueError, match="from 1 to 100 characters"):
        BrokerClient(["127.0.0.1:9"], name, KEY)


def test_a_group_that_cannot_be_joined_is_named_with_its_flags(tmp_path):
    told = {"group": "239.17.4.71:17473", "interface": "203.0.113.1"}
    with pytest.raises(
        BrokerSettingsError, match=r"--group 239.17.4.71:17473 cannot .* --interface 203.0.113.1: "
    ):
        asyncio.run(ran(tmp_path, lambda process: None, **told))


def test_the_log_says_who_is_the_root_when_that_changes(tmp_path, caplog):
    caplog.set_level("INFO")

    def change(process):
        def moved(path, **more):
            process.membership.election.standing = Standing(path=path)
            process.membership.place = process.membership.place._replace(designated="a", **more)
            process._do(ClientWork([], []))
            process._do(ClientWork([], []))

        moved((), parent="b")  # not known yet
        moved(("r", "b", "a"), parent="b")
        moved((), parent="")
        moved(("a",), root=True)
        moved(("r", "a"), root=False, parent="r")
        process.end()

    assert asyncio.run(ran(tmp_path, change)) == 0
    assert [one.message for one in caplog.records if "broker_process" in one.name][:4] == [
        "the root of the tree is cluster r; above cluster a is b",
        "cluster a has no place in the tree, and looks for one",
        "cluster a is the root of the tree now; its designated broker is a",
        "the root of the tree is cluster r; above cluster a is r",
    ]


def test_the_log_says_when_another_strategy_comes_into_use(tmp_path, caplog):
    caplog.set_level("INFO")

    def change(process):
        process.broker.router.place(process.membership.place._replace(designated="a", root=True), 0.0)
        for name in ("hybrid", "rendezvous", "rendezvous"):
            process._do(ClientWork([], process.broker.switch(name, 0.0)))
            process._do(ClientWork([], []))
        process.end()

    assert asyncio.run(ran(tmp_path, change)) == 0
    lines = [one.message for one in caplog.records if "routed by" in one.message]
    assert lines == ["events are routed by rendezvous now; before, they were by hybrid"]


def test_the_metric_of_the_strategy_is_1_for_the_one_in_use_alone(tmp_path):
    def strategies(process):
        samples = [one for family in BrokerMetrics(process.snapshot).collect() for one in family.samples]
        return {
            one.labels["strategy"]: one.value for one in samples if one.name == "rtfilter_overlay_strategy"
        }

    def change(process):
        assert strategies(process) == {"hybrid": 1}
        process.broker.router.place(process.membership.place._replace(designated="a", root=True), 0.0)
        process.broker.switch("rendezvous", 0.0)
        assert strategies(process) == {"rendezvous": 1}
        process.end()

    assert asyncio.run(ran(tmp_path, change)) == 0


def test_brokers_greet_alike_that_have_the_same_rendezvous_clusters_in_any_order(tmp_path):
    def said(*given):
        told = BrokerSettings(
            key=tmp_path,
            data=tmp_path,
            schema=str(tmp_path),
            name="a",
            rendezvous="here:9",
            rendezvous_for=given,
        )
        return BrokerProcess(told, {"trade": Schema({"x": float})}, KEY, Store(), "here:9").board.own.assigned

    assert said("trade=a", "alarm=b") == said("alarm=b", "trade=a")
    assert len({said(), said("trade=a"), said("trade=b"), said("alarm=a")}) == 4
    assert said() == ""


def test_brokers_may_have_other_matchers_than_each_other(tmp_path):
    def made(**matchers):
        told = BrokerSettings(key=tmp_path, data=tmp_path, schema="{}", name="a", rendezvous="here:9")
        types = {"trade": Schema({"x": float})}
        return BrokerProcess(told, types, KEY, Store(), "here:9", matchers)

    nodes = {"name": "filter-nodes", "bit_lists": 0.5}
    assert made(trade=nodes).board.own == made().board.own
    index = made(trade=nodes).broker.router._core.table._indexes["trade"]._settled()
    assert index.stats()["matcher"]["name"] == "filter-nodes"


def test_a_client_knows_how_long_its_broker_takes_events_and_conditions(tmp_path):
    async def visit(address):
        async with BrokerClient([address], "ann", KEY) as ann:
            with pytest.raises(
                BrokerRefusedError, match="the event is 5,006 bytes long; at most 4,000, see --mess"
            ):
                await ann.publish("trade", {"x": "n" * 5000})
            with pytest.raises(BrokerRefusedError, match="the condition is 8,996 bytes long"):
                await ann.subscribe("trade", " OR ".join(["x > 0"] * 1000))
            ann._most = 10_000  # that of another broker, before it is connected to this one
            _, arrived = await ann.start("trade", {"x": "n" * 5000})
            ann._most = 5000
            with pytest.raises(BrokerRefusedError, match="the event is 5,006 bytes long"):
                await arrived

    assert asyncio.run(ran(tmp_path, lambda process: None, visit, message=5000)) == 0


def test_the_strategy_that_was_changed_to_is_kept_for_the_next_start(tmp_path):
    kept = []

    def change(process):
        process.broker.router.place(process.membership.place._replace(designated="a", root=True), 0.0)
        process._do(ClientWork([], process.broker.switch("rendezvous", 0.0)))
        kept.extend(change.data for job in process.keeper._waiting for change in job.changes)
        process.end()

    assert asyncio.run(ran(tmp_path, change)) == 0
    store = Store()
    store.memory = lambda: kept[-1]
    settings = BrokerSettings(key=tmp_path, data=tmp_path, schema="{}", name="a", rendezvous="here:9")
    later = BrokerProcess(settings, {"trade": Schema({"x": float})}, KEY, store, "here:9")
    assert later.broker.router.switched.wave.strategy == "rendezvous"
    later.broker.router.place(later.membership.place._replace(designated="a", root=True), 0.0)
    assert later.broker.router.strategy.name == "rendezvous"
