"""Brokers in processes: alerts arrive, also where processes are killed and started again."""

import asyncio
import json
import re
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest
from processes import HEARTBEAT, Processes, Subscriber, processes

import forks
import postgresql
from rtfilter.cli import broker, main
from rtfilter.overlay.running.broker_client import BrokerRefusedError, asked
from rtfilter.overlay.running.broker_frames import LinkError
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.client_messages import LinkCut

pytestmark = pytest.mark.slow
HOME = Path(__file__).parents[3]


def run(script):
    return asyncio.run(asyncio.wait_for(script(), 600))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers that nobody kills."""
    with processes(tmp_path_factory.mktemp("pair")) as network:
        network.start("a")
        network.start("b")
        run(lambda: network.whole("a", "b"))
        yield network


def test_an_event_arrives_at_who_wants_it(pair):
    async def script():
        async with Subscriber(pair.client("ann", "b")) as ann, pair.client("bob", "a") as bob:
            await ann.client.subscribe("trade", "x > 1")
            for x in (0.5, 2.0, 3.0):
                await bob.publish("trade", {"x": x})
            assert ann.values == [2.0, 3.0]

    run(script)


@pytest.mark.long
def test_subscriptions_end_with_their_client(pair):
    test_an_event_arrives_at_who_wants_it(pair)

    async def script():
        async with Subscriber(pair.client("ann", "b")) as ann, pair.client("bob", "a") as bob:
            async with asyncio.timeout(120):
                await bob.publish("trade", {"x": 5.0})
            assert ann.values == []

    run(script)


def test_what_cannot_be_is_refused(pair):
    async def script():
        async with pair.client("ann", "a") as ann:
            with pytest.raises(BrokerRefusedError, match="y"):
                await ann.subscribe("trade", "y > 1")
            with pytest.raises(BrokerRefusedError, match="tirade"):
                await ann.publish("tirade", {"x": 1.0})
            await ann.publish("trade", {"x": 1.0})

    run(script)


def test_of_two_programs_of_one_name_the_later_has_it_and_the_other_says_why_it_ends(pair, capsys):
    told = ["--name", "ann", "--at", pair.addresses["a"], "--key", str(pair.folder / "client.key")]

    async def script():
        async with pair.client("ann", "a") as former:
            waiting = asyncio.ensure_future(anext(aiter(former)))
            status = asyncio.create_task(
                asyncio.to_thread(main, ["broker", "subscribe", "trade", "x > 1", "--count", "1", *told])
            )
            with pytest.raises(
                BrokerRefusedError, match=r"another program, at 127.* has connected as ann; take"
            ):
                await waiting
            with pytest.raises(BrokerRefusedError, match="has connected as ann"):
                await former.subscribe("trade", "x > 1")
            former._ended = False  # a program that comes back by itself all the same
            again = asyncio.create_task(former._run(None))
            with pytest.raises(BrokerRefusedError, match="is connected as ann; take another name"):
                await anext(aiter(former))
            await again
            async with pair.client("bob", "b") as bob:
                while "subscribed" not in capsys.readouterr().err:
                    await asyncio.sleep(0.05)
                await bob.publish("trade", {"x": 2.0})
            assert await status == 0

    run(script)
    lines = [line for line in pair.log("a").splitlines() if " ann at " in line]
    assert len(lines) == 2
    assert "has connected by the same name" in lines[0]
    assert "is refused: the name is that of" in lines[1]


@pytest.mark.long
def test_the_command_of_a_client_whose_name_is_taken_ends_and_is_not_waited_for(pair):
    told = ["--name", "ann", "--at", pair.addresses["a"], "--key", str(pair.folder / "client.key")]
    command = ["-m", "rtfilter", "broker", "subscribe", "trade", "x > 1", *told]
    former = forks.python(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while "subscribed" not in former.stderr.readline():
        assert former.poll() is None

    async def script():
        async with pair.client("ann", "a") as later:
            _, said = await asyncio.to_thread(former.communicate, timeout=120)
            assert "has connected as ann; take another name" in said
            assert former.returncode == 2
            await later.subscribe("trade", "x > 1")
        async with pair.client("bob", "b") as bob, asyncio.timeout(120):
            await bob.publish("trade", {"x": 2.0})

    run(script)


def test_a_subscriber_that_is_told_to_end_leaves_in_order(pair):
    """Or a publisher would wait for it, as for a client that comes back."""
    told = ["--name", "eve", "--at", pair.addresses["a"], "--key", str(pair.folder / "client.key")]
    command = ["-m", "rtfilter", "broker", "subscribe", "trade", "x > 1", *told]
    with forks.python(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while "subscribed" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert "ended by a signal" in process.communicate(timeout=120)[1]
    assert process.returncode == 143
    asyncio.run(asyncio.wait_for(gone(pair, "a", "eve"), 120))


async def gone(pair, broker, client):
    while client in str(await pair.describe(broker)):
        await asyncio.sleep(0.05)


@pytest.mark.long
def test_a_broker_of_another_strategy_or_of_other_types_is_refused(pair, tmp_path):
    """It would be linked, and events published there would be acknowledged and lost."""
    (tmp_path / "other.json").write_text('{"trade": {"x": "int"}}')
    flags = {"c": ["--strategy", "rendezvous"], "d": ["--schema", tmp_path / "other.json"]}
    reasons = {"c": "has --strategy", "d": r"have different event types \(--schema\)"}

    async def script(name):
        async with pair.client("cat", name) as cat, Subscriber(pair.client("ann", "a")) as ann:
            await ann.client.subscribe("trade", "x > 1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await cat.publish("trade", {"x": 5})
            assert not ann.values

    for name, given in flags.items():
        pair.start(name, last=given)
        run(partial(script, name))
        assert re.search(f"cannot reach [ab] at .*{reasons[name]}", pair.log(name))
        pair.kill(name)
    test_an_event_arrives_at_who_wants_it(pair)


def test_rubbish_ends_no_broker(pair):
    host, port = pair.addresses["a"].split(":")
    for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, b""):
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(rubbish)
    test_an_event_arrives_at_who_wants_it(pair)


def test_a_wrong_key_is_told_and_gets_nowhere(pair, tmp_path, capsys):
    Key.new().of(KeyRole.CLIENT).write(tmp_path / "other.key")
    told = ["--at", pair.addresses["a"], "--name", "eve", "--key", str(tmp_path / "other.key")]
    assert main(["broker", "subscribe", "trade", "x > 1", *told]) == 2
    assert "has another key" in capsys.readouterr().err
    run_map = ["broker", "map", "--at", pair.addresses["a"], "--key", str(pair.folder / "client.key")]
    assert main(run_map) == 2
    assert "give the key of brokers" in capsys.readouterr().err


def test_the_key_of_clients_runs_no_broker_and_makes_no_keys(tmp_path, capsys):
    Key.new().of(KeyRole.CLIENT).write(tmp_path / "client.key")
    client_key = str(tmp_path / "client.key")
    assert main(["broker", "rendezvous", "--key", client_key, "--data", str(tmp_path / "point")]) == 2
    assert "client.key has the key of clients; give the key of the network" in capsys.readouterr().err
    assert main(["broker", "key", str(tmp_path / "new.key"), "--of", client_key]) == 2
    assert "client.key has the key of clients; give the key of the network" in capsys.readouterr().err
    assert not (tmp_path / "new.key").exists()


def test_a_key_in_the_place_of_another_one_says_what_to_do(tmp_path, capsys):
    (tmp_path / "network.key").touch()
    assert main(["broker", "key", str(tmp_path / "network.key")]) == 2
    assert "network.key exists already; take another name, or remove it first" in capsys.readouterr().err


def test_commands_subscribe_publish_and_draw(pair, tmp_path, capsys):
    (tmp_path / "events.jsonl").write_text("".join(json.dumps({"x": float(x)}) + "\n" for x in range(6)))
    key = ["--key", str(pair.folder / "client.key")]
    command = ["broker", "subscribe", "trade", "x > 3", "--count", "2", "--name", "ann", *key]
    command += ["--at", pair.addresses["b"]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    subscriber = forks.python("-m", "rtfilter", *command, **pipes)
    while "subscribed" not in subscriber.stderr.readline():
        assert subscriber.poll() is None
    published = ["broker", "publish", "trade", str(tmp_path / "events.jsonl"), "--name", "bob", *key]
    assert main([*published, "--at", pair.addresses["a"]]) == 0
    out, _ = subscriber.communicate(timeout=180)
    assert [json.loads(line)["event"]["x"] for line in out.splitlines()] == [4.0, 5.0]
    assert subscriber.returncode == 0
    whole = ["--key", str(pair.folder / "network.key"), "--at", pair.addresses["point"]]
    capsys.readouterr()
    assert main(["broker", "map", *whole]) == 0
    tree = capsys.readouterr().out
    assert re.search(r"^a\n  \* a 127.*\n  b\n    \* b 127", tree)
    assert main(["broker", "map", *whole, "--out", str(tmp_path / "tree.png")]) == 0
    assert (tmp_path / "tree.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("type", "options", "said"),
    [
        ("trade", [], "events.csv:3: column 'x': 'abc' is not a number; leave the cell empty if the value is "
                      "missing, or let the type be str; events published before it: 1, after it: 0"),
        ("trade", ["--schema", '{"y": "str"}'], "none of its columns (x) is an attribute of the schema (y); "
                                                "no event was published"),
        ("tirade", [], "unknown event type 'tirade'; the types of this broker are trade"),
    ],
)  # fmt: skip
def test_csv_is_read_by_the_schema_of_the_broker(pair, tmp_path, capsys, type, options, said):
    (tmp_path / "events.csv").write_text("x\n1\nabc\n")
    told = ["--at", pair.addresses["a"], "--name", "bob", "--key", str(pair.folder / "client.key")]
    assert main(["broker", "publish", type, str(tmp_path / "events.csv"), *told, *options]) == 2
    assert said in capsys.readouterr().err


def test_who_cuts_off_a_name_that_the_network_does_not_have_is_warned(pair, capsys):
    def said(action, name):
        told = ["--at", pair.addresses["point"], "--key", str(pair.folder / "network.key")]
        assert main(["broker", action, name, *told]) == 0
        return [line.removeprefix("rtfilter: ") for line in capsys.readouterr().err.splitlines()]

    assert said("cut", "nobody") == [
        "rendezvous knows no broker 'nobody'; it will refuse one of this name",
        "rendezvous does not talk to: nobody",
    ]
    assert said("cut", "nobody") == ["rendezvous does not talk to: nobody"]
    assert said("heal", "nobody") == ["rendezvous talks to all"]
    assert said("heal", "nobody") == [
        "nothing to heal: rendezvous was not cut off from 'nobody'",
        "rendezvous talks to all",
    ]
    for name in "ab":  # the point knows one of them alone, the root
        assert said("cut", name) == [f"rendezvous does not talk to: {name}"]
        assert said("heal", name) == ["rendezvous talks to all"]


def test_who_publishes_is_told_which_line_is_refused(pair, tmp_path, capsys):
    key = ["--at", pair.addresses["a"], "--name", "bob", "--key", str(pair.folder / "client.key")]
    rest = "; what follows it may not be"
    for wrong, reason in (("NaN", "JSON has no NaN"), ("1" + "0" * 30, f"cannot be sent.*{rest}")):
        (tmp_path / "events.jsonl").write_text(f'{{"x": 1.0}}\n{{"x": {wrong}}}\n{{"x": 2.0}}\n')
        assert main(["broker", "publish", "trade", str(tmp_path / "events.jsonl"), *key]) == 2
        said = capsys.readouterr().err
        assert re.search(rf"events.jsonl.*2.*: .*{reason}", said), said
        assert re.search(r"; events published before it: 1, after it: [01]; all receivers have", said)


@pytest.mark.parametrize("before", [0, 3])
def test_all_events_before_a_line_that_is_none_are_published_and_counted(pair, before, tmp_path, capsys):
    lines = [f'{{"x": {x}}}' for x in (1.0, 2.0, 3.0)[:before]]
    lines += ["rubbish", '{"x": 4.0}']
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    command = ["broker", "publish", "trade", str(tmp_path / "events.jsonl"), "--at", pair.addresses["a"]]
    command += ["--name", "bob", "--key", str(pair.folder / "client.key")]
    published = "events published before it: 3, after it: 0; all receivers have them"

    async def script():
        async with Subscriber(pair.client("ann", "a")) as ann:
            await ann.client.subscribe("trade", "x > 0")
            assert await asyncio.to_thread(main, command) == 2
            said = capsys.readouterr().err
            assert re.search(rf"events.jsonl\D*{before + 1}\b", said), said
            assert said.endswith(f"; {published if before else 'no event was published'}\n"), said
            assert sorted(ann.values) == [1.0, 2.0, 3.0][:before]

    run(script)


def test_who_publishes_a_misspelt_attribute_is_told(pair, tmp_path, capsys):
    (tmp_path / "events.jsonl").write_text(2 * '{"X": 2.0}\n')
    told = ["--at", pair.addresses["a"], "--name", "bob", "--key", str(pair.folder / "client.key")]
    assert main(["broker", "publish", "trade", str(tmp_path / "events.jsonl"), *told]) == 0
    assert capsys.readouterr().err.count("trade: unknown attribute 'X'; did you mean 'x'?") == 1


def test_who_publishes_is_told_what_is_waited_for(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(broker, "PATIENCE", 0.2)
    (tmp_path / "events.jsonl").write_text('{"x": 2.0}\n')
    told = ["--at", pair.addresses["a"], "--name", "bob", "--key", str(pair.folder / "client.key")]
    command = ["broker", "publish", "trade", str(tmp_path / "events.jsonl"), *told]

    async def script():
        async with pair.client("ann", "b") as ann:
            await ann.subscribe("trade", "x > 1")
            status = asyncio.create_task(asyncio.to_thread(main, command))
            said = ""
            while "a waits for" not in said:
                assert not status.done()
                await asyncio.sleep(0.05)
                said += capsys.readouterr().err
            await asyncio.sleep(1)
            ann.had(await anext(aiter(ann)))
            assert await status == 0
            said += capsys.readouterr().err
            assert "waiting until all receivers have the events" in said
            whom = r"events.jsonl.*1: a waits for cluster b, which has not acknowledged it, for \d+ s"
            assert len(re.findall(whom, said)) == 1, said
            assert len(said.splitlines()) == 3, said  # what it waits for, once, and that it is done

    run(script)


def test_events_of_a_pipe_are_acknowledged_and_refused_while_it_is_silent(pair):
    told = ["--at", pair.addresses["a"], "--name", "bob", "--key", str(pair.folder / "client.key")]
    command = ["-m", "rtfilter", "broker", "publish", "trade", *told]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with forks.python(*command, **pipes) as publisher:
        publisher.stdin.write('{"x": 0.5}\n{"x": NaN}\n')
        publisher.stdin.flush()
        assert publisher.wait(120) == 2
        assert "NaN" in publisher.stderr.read()


def test_a_map_of_nobody_says_so(tmp_path, capsys):
    with processes(tmp_path) as network:
        told = ["--at", network.addresses["point"], "--key", str(tmp_path / "network.key")]
        assert main(["broker", "map", *told]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert "there is no tree yet" in err


def test_the_program_on_the_page_does_what_it_says(pair, tmp_path):
    (block,) = re.findall(r"^```python\n(.*?)^```$", (HOME / "docs/overlay.md").read_text(), re.M | re.S)
    program = block.replace("trades", "trade").replace('"symbol": "ACME", "price": 9.5', '"x": 9.5')
    program = program.replace("price < 10", "x < 10").replace("127.0.0.1:17471", pair.addresses["a"])
    program = program.replace("127.0.0.1:17472", pair.addresses["b"])
    program = program.replace('Path("client.key")', f"Path({str(pair.folder / 'client.key')!r})")
    (tmp_path / "program.py").write_text(program)
    ran = forks.python(tmp_path / "program.py", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, said = ran.communicate(timeout=180)
    assert out == "{'x': 9.5}\n", said


@pytest.mark.long
def test_a_killed_broker_goes_on_where_it_was(tmp_path):
    with processes(tmp_path) as network:
        network.start("a")
        network.start("b")

        async def script():
            await network.whole("a", "b")
            async with Subscriber(network.client("ann", "b")) as ann, network.client("bob", "a") as bob:
                await ann.client.subscribe("trade", "x > 1")
                await bob.publish("trade", {"x": 2.0})
                network.kill("b")
                _, arrived = await bob.start("trade", {"x": 3.0})
                await asyncio.sleep(0.5)
                assert not arrived.done()
                network.start("b")
                await asyncio.wait_for(arrived, 180)
                assert ann.values == [2.0, 3.0]

        run(script)


def test_what_a_killed_broker_has_stored_arrives_though_its_publisher_is_gone(tmp_path):
    with processes(tmp_path) as network:
        network.start("a")
        network.start("b")

        async def script():
            await network.whole("a", "b")
            async with network.client("ann", "b") as ann:
                await ann.subscribe("trade", "x > 1")
                async with network.client("bob", "a") as bob:
                    _, arrived = await bob.start("trade", {"x": 2.0})
                    async with asyncio.timeout(180):
                        while not (await network.describe("b")).stats["clients"]["undelivered"]:
                            await asyncio.sleep(0.1)  # it is stored before it is sent
                    assert not arrived.done()  # ann has not said that she has it
                network.kill("a")
                network.start("a")
                assert (await network.describe("a")).stats["clients"]["unacknowledged"] == 1
                async for delivery in ann:
                    assert delivery.values == {"x": 2.0}
                    ann.had(delivery)
                    break
                async with asyncio.timeout(180):
                    while (await network.describe("a")).stats["clients"]["unacknowledged"]:
                        await asyncio.sleep(0.1)

        run(script)


def test_a_broker_with_a_full_disk_refuses_what_it_cannot_keep_and_goes_on(tmp_path):
    with processes(tmp_path) as network:
        network.start("a")
        network.start("b")

        async def script():
            await network.whole("a", "b")
            async with (
                Subscriber(network.client("ann", "b")) as ann,
                network.client("bob", "a") as bob,
                network.client("cyd", "b") as cyd,
            ):
                await ann.client.subscribe("trade", "x > 1")
                network.full("b").touch()
                for _ in range(2):
                    with pytest.raises(
                        BrokerRefusedError, match=r"cannot store anything now.* ask again later"
                    ):
                        await cyd.publish("trade", {"x": 9.0})
                with pytest.raises(BrokerRefusedError, match="another broker"):
                    await cyd.subscribe("trade", "x > 1")
                await bob.publish("trade", {"x": 2.0})  # what comes from others is delivered
                assert ann.values == [2.0]
                assert (await network.describe("b")).stats["process"]["keeping"] == 0
                network.full("b").unlink()
                await cyd.publish("trade", {"x": 3.0})
                assert ann.values == [2.0, 3.0]
            await network.whole("a", "b")
            assert len(network.log("b").splitlines()) == 2  # it began, and it ended

        run(script)


@pytest.mark.long
def test_subscriptions_of_a_client_that_comes_to_a_full_disk_are_there_when_there_is_room(tmp_path):
    with processes(tmp_path) as network:
        network.start("a")
        network.start("b")

        async def script():
            await network.whole("a", "b")
            async with Subscriber(network.client("ann", "b", "a")) as ann, network.client("bob", "a") as bob:
                await ann.client.subscribe("trade", "x > 1")
                network.full("a").touch()
                network.kill("b")
                async with asyncio.timeout(180):
                    while "cannot be stored" not in network.log("a"):
                        await asyncio.sleep(0.1)
                network.full("a").unlink()
                async with asyncio.timeout(180):
                    while not (await network.describe("a")).stats["clients"]["subscriptions"]:
                        await asyncio.sleep(0.1)
                await bob.publish("trade", {"x": 2.0})
                assert ann.values == [2.0]

        run(script)


@pytest.mark.long
def test_who_cannot_keep_that_it_claims_does_not_and_the_point_keeps_its_root(tmp_path):
    with processes(tmp_path) as network:
        network.start("a1", "--cluster", "a")
        network.start("a2", "--cluster", "a", "--peer", f"a1={network.addresses['a1']}")

        async def script():
            found = await network.whole("a1", "a2")
            led = found.designated("a").itself.name
            other = "a1" if led == "a2" else "a2"
            network.full(other).touch()
            network.full("point").touch()
            network.kill(led)
            async with asyncio.timeout(180):
                while "cannot be stored" not in network.log(other):
                    await asyncio.sleep(0.1)
            await asyncio.sleep(5 * HEARTBEAT)
            assert (await network.describe(other)).designated == ""
            network.full(other).unlink()
            await network.whole(other)  # the same cluster is the root, which the point knows
            network.full("point").unlink()

        run(script)


@pytest.mark.needs("postgresql")
def test_brokers_go_on_from_one_database_of_postgresql(tmp_path, monkeypatch):
    with postgresql.running() as server:
        monkeypatch.setenv("RTFILTER_DATABASE", server.url)
        test_a_killed_broker_goes_on_where_it_was(tmp_path)
        assert not list(tmp_path.glob("*/*.sqlite"))


def test_alerts_arrive_though_the_root_is_killed(tmp_path):
    with processes(tmp_path, "--children", "2") as network:
        network.start("root1", "--cluster", "root")
        network.start("root2", "--cluster", "root", "--peer", f"root1={network.addresses['root1']}")
        network.start("c")
        network.start("d")

        async def script():
            await network.whole("root1", "root2", "c", "d")
            async with (
                Subscriber(network.client("ann", "d")) as ann,
                Subscriber(network.client("cyd", "root1", "c")) as cyd,
                network.client("bob", "c") as bob,
            ):
                for one in (ann, cyd):
                    await one.client.subscribe("trade", "x >= 0")
                waiting = []
                for x in range(60):
                    waiting.append((await bob.start("trade", {"x": float(x)}))[1])
                    await asyncio.sleep(0.05)
                    if x == 20:
                        network.kill("root1")
                    if x == 40:
                        network.kill("root2")
                await asyncio.wait_for(asyncio.gather(*waiting), 180)
                for one in (ann, cyd):
                    assert sorted(one.values) == list(map(float, range(60)))
            await network.whole("c", "d")

        run(script)


@pytest.mark.long
def test_the_strategy_is_changed_while_the_network_runs_and_events_go_on(tmp_path, capsys):
    with processes(tmp_path, "--children", "2") as network:
        for name in "abcd":
            network.start(name)

        def switch(name, at="point"):
            told = ["--at", network.addresses[at], "--key", str(tmp_path / "network.key")]
            return asyncio.to_thread(main, ["broker", "switch", name, *told])

        async def script():
            found = await network.whole(*"abcd")
            root = found.root.itself.name
            async with Subscriber(network.client("ann", "c")) as ann, network.client("bob", "d") as bob:
                await ann.client.subscribe("trade", "x >= 0")
                waiting = []
                switching = asyncio.create_task(switch("event_forwarding"))
                while not switching.done():
                    waiting.append((await bob.start("trade", {"x": float(len(waiting))}))[1])
                    await asyncio.sleep(0.02)
                assert await switching == 0
                assert "all 4 brokers that answer route by event_forwarding" in capsys.readouterr().err
                found = await network.whole(*"abcd")
                assert set(found.strategies.values()) == {"event_forwarding"}
                assert await switch("flood") == 2
                assert "unknown strategy 'flood'; choose one of" in capsys.readouterr().err
                network.kill(root)
                network.start(root)
                await network.whole(*"abcd")
                waiting.append((await bob.start("trade", {"x": float(len(waiting))}))[1])
                await asyncio.wait_for(asyncio.gather(*waiting), 180)
                assert sorted(ann.values) == list(map(float, range(len(waiting))))
                assert await switch("rendezvous", at="b") == 0

        run(script)


@pytest.mark.long
def test_a_network_chooses_another_strategy_by_itself_and_events_go_on(tmp_path):
    """Two clusters want all events: then nothing costs less than to send each one to both."""
    with processes(tmp_path, "--choose-every", "0.5", "--grace", "1") as network:
        network.start("a")
        network.start("b")

        async def script():
            await network.whole("a", "b")
            waiting = []
            async with (
                Subscriber(network.client("ann", "a")) as ann,
                Subscriber(network.client("eve", "b")) as eve,
            ):
                for one in (ann, eve):
                    await one.client.subscribe("trade", "x >= 0")
                assert set((await network.whole("a", "b")).strategies.values()) == {"hybrid"}
                async with network.client("bob", "b") as bob, asyncio.timeout(180):
                    chosen = set()
                    while chosen != {"event_forwarding"}:
                        for _ in range(10):
                            waiting.append((await bob.start("trade", {"x": float(len(waiting))}))[1])
                        found = await network.whole("a", "b")
                        chosen = set(found.strategies.values())
                    await asyncio.gather(*waiting)
                    await bob.publish("trade", {"x": float(len(waiting))})
                for one in (ann, eve):
                    assert sorted(one.values) == list(map(float, range(len(waiting) + 1)))

        run(script)


@pytest.mark.long
def test_events_of_a_type_meet_at_its_rendezvous_cluster(tmp_path, capsys):
    flags = ["--strategy", "rendezvous", "--rendezvous-for", "trade=c", "--grace", "1"]
    with processes(tmp_path, *flags) as network:
        network.start("a")
        network.start("b")

        async def script():
            await network.whole("a", "b")
            network.start("c")  # which is not the root
            await network.whole(*"abc")
            async with Subscriber(network.client("ann", "b")) as ann, network.client("bob", "a") as bob:
                await ann.client.subscribe("trade", "x > 1")
                for x in (0.5, 2.0, 3.0):
                    await bob.publish("trade", {"x": x})
                assert ann.values == [2.0, 3.0]
                sent = (await network.describe("c")).stats["sent"]
                assert sent["Event"] >= 2  # nobody subscribes or publishes there
                network.kill("c")
                _, arrived = await bob.start("trade", {"x": 4.0})
                await asyncio.sleep(1)
                assert not arrived.done()
                network.start("c")
                await asyncio.wait_for(arrived, 180)
                assert ann.values == [2.0, 3.0, 4.0]

        run(script)
        told = ["--key", network.folder / "network.key", "--schema", network.folder / "types.json"]
        told += ["--name", "d", "--data", tmp_path / "d", "--rendezvous", network.addresses["point"]]
        assert main(["broker", "run", *map(str, told), "--rendezvous-for", "tirade=c"]) == 2
        assert "--rendezvous-for: no event type 'tirade'; --schema has trade" in capsys.readouterr().err


@pytest.mark.long
def test_a_cut_link_is_gone_round(tmp_path):
    with processes(tmp_path, "--children", "2") as network:
        for name in "abcd":
            network.start(name)

        async def script():
            found = await network.whole(*"abcd")
            below = next(one for one in found.brokers.values() if one.parent not in ("", "a"))
            name, above = below.itself.name, below.parent
            async with Subscriber(network.client("ann", name)) as ann, network.client("bob", above) as bob:
                await ann.client.subscribe("trade", "x >= 0")
                for one, other in ((name, above), (above, name)):
                    told = await asked(network.addresses[one], network.key, LinkCut(other))
                    assert told.refused == (other,)
                await bob.publish("trade", {"x": 1.0})
                assert ann.values == [1.0]
            found = await network.whole(*"abcd")
            assert found.brokers[name].parent not in ("", above)

        run(script)


def test_processes_end_in_order_at_a_signal(tmp_path):
    with processes(tmp_path) as network:
        network.start("a")
        assert network.end("a") == 0
        assert network.end("point") == 0
        assert (tmp_path / "a.log").read_text() == ""


def test_a_process_with_too_few_open_files_says_so(tmp_path):
    network = Processes(tmp_path)
    network.start("point", prefix=("sh", "-c", 'ulimit -n 500; exec "$@"', "sh"))
    assert network.end("point") == 0
    assert "may have 500 files open, and 1100 connections need more" in network.log("point")


def test_two_processes_do_not_share_a_folder(tmp_path, capsys):
    with processes(tmp_path) as network:
        command = ["--key", str(tmp_path / "network.key"), "--data", str(tmp_path / "point")]
        assert main(["broker", "rendezvous", *command]) == 2
        assert "another process uses" in capsys.readouterr().err
        with pytest.raises(LinkError, match="serves no clients"):
            run(lambda: _as_client(network))


async def _as_client(network):
    client = network.client("ann", "point")
    async with client:
        link = client._link or await _linked(client)
        client.unsubscribe("nothing")
        while not link.why:
            await asyncio.sleep(0.01)
        raise LinkError(link.why)


async def _linked(client):
    while client._link is None:
        await asyncio.sleep(0.01)
    return client._link
