"""What people see of sites: their door, their metrics, the map."""

import json
import re
from functools import partial
from urllib.request import urlopen

import pytest

from rtfilter.cli import main, map
from service.running import running
from service.sites import pairs
from service.sites.network import Network

NAMES = ("paris", "rome", "lima")
until = partial(pairs.until, seconds=120)
EVENT = b'{"price": 7, "serial": 1}'
ALONE = {
    "site": "here",
    "address": "http://127.0.0.1:9",
    "rendezvous": "http://127.0.0.1:9",
    "heartbeat": 0.1,
}


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    made = Network(tmp_path_factory.mktemp("sites"), {name: name for name in NAMES})
    try:
        made.start_all()
        for name in NAMES:
            publish(made, name)
        yield made
    finally:
        made.end()


def publish(network, name):
    json = {"Content_Type": "application/json"}
    return network.servers[name].ask("POST", "/filters/default/events", "carl", EVENT, **json)


def shown(network, site):
    return network.servers[site].ask("GET", "/site", "admin")[1]


def all_shown(network):
    """What all sites say, once all are in the tree, connected, and miss nothing."""

    def found():
        sites = {name: shown(network, name) for name in network.clusters}
        known = all(len(one["sites"]) == len(sites) - 1 for one in sites.values())
        calm = all(one["current"] and one["neighbours"] for one in sites.values())
        linked = all(
            near["taking"] and near["connected"] for one in sites.values() for near in one["neighbours"]
        )
        roots = {one["root_cluster"] for one in sites.values()}
        return known and calm and linked and len(roots) == 1 and "" not in roots and sites

    return until(found)


def counted(server):
    """How many events of other sites a site has stored, as it counts them."""
    with urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        return float(re.search(rb"\nrtfilter_service_site_events_total (.*)\n", answer.read())[1])


def stored(server):
    """The same, as its log has it."""
    events = server.ask("GET", "/filters/default/events", "admin")[1]["events"]
    return sum(":" in one["user"] for one in events)


def map_of(network, capsys, *more):
    assert main(["map", "--url", f"http://127.0.0.1:{network.ports['lima']}", "--user", "admin", *more]) == 0
    return capsys.readouterr()


@pytest.mark.slow
def test_sites_are_seen(network, capsys):
    found = all_shown(network)
    addresses = {name: f"http://127.0.0.1:{port}" for name, port in network.ports.items()}
    assert {name: one["address"] for name, one in found.items()} == addresses
    (root,) = {one["root_cluster"] for one in found.values()}
    for name, one in found.items():
        assert (one["root"], bool(one["parent"])) == (name == root, name != root)
        assert all(near["address"] == addresses[near["site"]] for near in one["neighbours"])
    assert json.loads(map_of(network, capsys, "--json").out).keys() == set(NAMES)
    top, *others = map_of(network, capsys).out.splitlines()
    assert top == f"{root}  {addresses.pop(root)}"
    assert {line.strip() for line in others} == {f"{name}  {address}" for name, address in addresses.items()}
    assert all(line.startswith("  ") for line in others)


@pytest.mark.slow
def test_events_of_other_sites_are_counted_and_what_is_cut_off_is_named(network, capsys):
    all_shown(network)
    rome = network.servers["rome"]
    url = f"http://127.0.0.1:{rome.port}"
    assert main(["subscribe", "price > 5", "--everywhere", "--user", "ann", "--url", url]) == 0
    assert capsys.readouterr().out.strip().isdigit()
    publish(network, "lima")
    until(lambda: rome.ask("GET", "/deliveries", "ann")[1]["deliveries"])
    until(lambda: counted(rome) == stored(rome) > 0)
    assert shown(network, "lima")["subscriptions"] > 0
    rome.kill()
    rome.end()
    until(lambda: "rome does not answer" in map_of(network, capsys).err)


def test_a_site_alone_is_the_root_and_misses_nothing(tmp_path, capsys):
    with running(tmp_path, **ALONE) as server:
        found = until(lambda: (one := server.ask("GET", "/site").body)["root"] and one["current"] and one)
        assert (found["site"], found["parent"], found["neighbours"], found["sites"]) == ("here", "", [], {})
        assert server.ask("GET", "/status", user=None).body["site"] == found
        text = server.ask("GET", "/metrics").bytes.decode()
        values = dict(re.findall(r"^rtfilter_service_site_(\w+) (.*)$", text, re.M))
        assert values == {"neighbours": "0.0", "reached": "1.0", "current": "1.0", "events_total": "0.0"}
        assert main(["map", "--url", server.opened.address, "--user", "ann"]) == 0
    assert capsys.readouterr().out == "here  http://127.0.0.1:9\n"


def test_only_who_wants_it_everywhere_waits_for_all_sites(tmp_path, capsys):
    waited = []

    async def everywhere(ids):
        waited.extend(ids)

    with running(tmp_path) as server:
        server.pipeline.everywhere = everywhere
        given = "subscribe", "price > 5", "--user", "ann", "--url", server.opened.address
        assert main([*given]) == main([*given, "--everywhere"]) == 0
    assert waited == [int(capsys.readouterr().out.split()[1])]


def test_a_server_that_is_no_site_says_so(tmp_path, capsys):
    with running(tmp_path) as server:
        assert server.ask("GET", "/site").status == 404
        assert server.ask("GET", "/status", user=None).body["site"] is None
        assert b"service_site" not in server.ask("GET", "/metrics").bytes
        assert main(["map", "--url", server.opened.address, "--user", "ann"]) == 2
    assert "this server is no site of a network: it was started without --site" in capsys.readouterr().err


def site(name, cluster, parent="", *, root=False, waiting=0, current=True):
    near = [{"site": "paris", "address": "http://paris", "waiting": waiting}]
    found = {"site": name, "cluster": cluster, "address": f"http://{name}", "root": root, "parent": parent}
    return found | {"designated": "rome", "neighbours": near, "sites": {}, "current": current}


def test_the_map_has_the_root_first_and_says_what_is_wrong():
    found = [
        site("bonn", "bonn", "africa"),
        site("lima", "lima", "europe", waiting=3, current=False),
        site("oslo", "oslo"),
        site("cusco", "cusco", "lima"),
        site("paris", "europe", root=True),
        site("rome", "europe", root=True),
        site("x", "x", "y"),  # a circle, while the tree changes
        site("y", "y", "x"),
    ]
    assert list(map._tree({one["site"]: one for one in found})) == [
        "rome (europe)  http://rome",
        "paris (europe)  http://paris",
        "  lima  http://lima, 3 wait for paris, catching up",
        "    cusco  http://cusco",
        "bonn  http://bonn, below africa",
        "oslo  http://oslo, cut off",
        "x  http://x, below y",
        "  y  http://y",
    ]
