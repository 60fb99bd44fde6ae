"""What brokers are told: by flags, by a file, and what is wrong with it."""

import json

import pytest

from rtfilter import Schema
from rtfilter.definition import Definition
from rtfilter.overlay.membership import Contact
from rtfilter.overlay.running.broker_settings import (
    BrokerSettings,
    BrokerSettingsError,
    PointSettings,
    event_types,
    host_and_port,
    settings,
)

NEEDED = {"name": "a", "key": "k", "data": "d", "schema": "t", "rendezvous": "point:17470"}


def test_flags_count_more_than_the_file_and_that_more_than_defaults(tmp_path):
    (tmp_path / "a.toml").write_text('port = 1\nhost = "::1"\npeers = ["b=host:1"]\n')
    told = settings(BrokerSettings, tmp_path / "a.toml", **NEEDED, port=2, strategy=None)
    assert (told.port, told.host, told.strategy) == (2, "::1", "hybrid")
    assert told.known == {"b": Contact("b", "a", "host:1")}
    assert told.home == "a"


@pytest.mark.parametrize("missing", NEEDED)
def test_what_is_needed_is_named(missing):
    with pytest.raises(BrokerSettingsError, match=f"--{missing} is needed"):
        settings(BrokerSettings, **{name: value for name, value in NEEDED.items() if name != missing})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"port": 65_536}, "--port: .*65535"),
        ({"heartbeat": 0.0}, "--heartbeat: .*> 0"),
        ({"rendezvous": "point"}, "--rendezvous: 'point' is no address"),
        ({"address": "here"}, "--address: 'here' is no address"),
        ({"interface": "eth0"}, "--interface: .*'eth0'"),
        ({"peers": ["b"]}, "--peer: 'b' is not NAME=HOST:PORT"),
        ({"peers": ["b=host"]}, "'host' is no address"),
        ({"rendezvous_for": ["trades"]}, "--rendezvous-for: 'trades' is not TYPE=CLUSTER"),
        ({"rendezvous_for": ["trades="]}, "'trades=' is not TYPE=CLUSTER"),
        ({"rendezvous_for": ["trades=a", "trades=b"]}, "--rendezvous-for: 'trades' has two clusters"),
        ({"strategy": "flood"}, "unknown strategy 'flood'; choose one of"),
        ({"choose_every": 0.0}, "--choose-every: .*> 0"),
        ({"message": 3999}, "--message: .*>= 4000"),
        ({"slack": 1.0}, "--slack: .*< 1"),
        ({"group": "239.1.1.1"}, "--group: '239.1.1.1' is no address"),
        ({"group": "10.1.1.1:1"}, "--group: 10.1.1.1 is no multicast address"),
        ({"group": "host:1"}, "--group: .*'host'"),
        ({"host": "0.0.0.0"}, "--address"),
        ({"name": "rendezvous"}, "cannot be called"),
        ({"name": ""}, "--name"),
        ({"key": ""}, "--key: a path is needed"),
        ({"log_level": "loud"}, "--log-level"),
    ],
)
def test_what_is_wrong_is_named(wrong, said):
    with pytest.raises(BrokerSettingsError, match=said):
        settings(BrokerSettings, **NEEDED | wrong)


def test_rendezvous_clusters_are_those_of_event_types():
    told = settings(BrokerSettings, **NEEDED, rendezvous_for=["trades=a", "alarms=b=c"])
    assert told.assigned == {"trades": "a", "alarms": "b=c"}
    told.require({"trades": None, "alarms": None})
    with pytest.raises(BrokerSettingsError, match=r"no event type 'alarms'; --schema has trades, alarm$"):
        told.require({"trades": None, "alarm": None})


@pytest.mark.parametrize(
    ("text", "said"),
    [("prot = 1", "did you mean 'port'"), ("port = 'x'", "a.toml: port"), ("port", "is not TOML")],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path, text, said):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(BrokerSettingsError, match=said):
        settings(PointSettings, tmp_path / "a.toml", key="k", data="d")


def test_event_types_are_schemas(tmp_path):
    file = tmp_path / "types.json"
    file.write_text('{"trades": {"price": "float"}}')
    for given in (str(file), file.read_text()):
        assert event_types(given) == {"trades": Definition(Schema({"price": float}))}
    nodes = {"name": "filter-nodes", "bit_lists": 0.1}
    given = json.dumps({"a": {"schema": {"x": "int"}, "matcher": nodes}})
    assert event_types(given) == {"a": Definition(Schema({"x": int}), nodes)}
    for wrong, said in (
        ("[]", "an object"),
        ("{}", "an object"),
        ("{", "is not JSON"),
        ('{"a": {"x": "long"}}', "'a': attribute 'x'"),
        ('{"a": {"schema": {"x": "int"}, "matcher": "tree"}}', "'a': unknown matcher 'tree'"),
        ('{"a": {"schema": {"x": "int"}, "order": "fifo"}}', "matches each event by itself"),
        ('{"a": {"schema": {"x": "int"}, "matcher": "matching-tree-equality"}}', "as a broker needs"),
    ):
        file.write_text(wrong)
        with pytest.raises(BrokerSettingsError, match=said):
            event_types(str(file))


def test_the_database_is_a_file_or_what_the_variable_names(monkeypatch):
    told = settings(PointSettings, key="k", data="d")
    monkeypatch.delenv("RTFILTER_DATABASE", raising=False)
    assert told.url == "sqlite:///d/broker.sqlite"
    for given in ("postgresql://u@h/n", "postgresql+psycopg://u@h/n"):
        monkeypatch.setenv("RTFILTER_DATABASE", given)
        assert told.url == "postgresql+psycopg://u@h/n"


def test_addresses_have_two_parts():
    assert host_and_port("[::1]:17470") == ("::1", 17_470)
    for wrong in ("", "host", "host:", ":1", "host:70000", "host:-1"):
        with pytest.raises(BrokerSettingsError):
            host_and_port(wrong)
