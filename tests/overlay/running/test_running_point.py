"""The rendezvous point as a process tells nobody of a root that it has not kept."""

import asyncio

import pytest
import sqlalchemy

from rtfilter.overlay.membership import Contact
from rtfilter.overlay.membership.contacts import Neighbour
from rtfilter.overlay.membership.rendezvous_point import AskRoot, ClaimRoot, RenewRoot, Root, RootIs
from rtfilter.overlay.running.broker_frames import Hello
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.broker_settings import PointSettings
from rtfilter.overlay.running.client_messages import Describe
from rtfilter.overlay.running.point_process import PointProcess


class Store:
    incarnation, error = 1, None

    def memory(self):
        return None

    def commit(self, changes):
        if self.error is not None:
            raise self.error


class Peer:
    """A link of a broker."""

    def __init__(self, name):
        self.peer = Hello(KeyRole.BROKER, name, name, "somewhere:1")


def cluster(name):
    contact = Contact(name, name, "somewhere:1")
    return Neighbour(name, contact, (contact,))


@pytest.fixture
def scene(tmp_path):
    """Runs a script with a point, its store, and what it has told."""

    def play(script):
        async def played():
            store, told = Store(), []
            point = PointProcess(PointSettings(key=tmp_path, data=tmp_path), Key.new(), store, "here:1")
            point._send = lambda one: told.append((one.to.name, one.message))

            async def says(name, message):
                point.hear(Peer(name), message)
                await point.keeper.flush()

            await script(says, store, told)

        asyncio.run(played())

    return play


def test_a_root_that_cannot_be_kept_is_none(scene):
    async def script(says, store, told):
        store.error = sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))
        await says("a", ClaimRoot(cluster("a"), "", 0))
        assert told == []
        await says("b", AskRoot(cluster("b").designated))
        assert told == [("b", RootIs(None))]
        store.error = None
        await says("b", ClaimRoot(cluster("b"), "", 0))
        assert told[1:] == [("b", RootIs(Root(cluster("b"), 1)))]

    scene(script)


def test_who_asks_while_a_root_is_being_kept_is_told_that_one(scene):
    async def script(says, store, told):
        claim = asyncio.ensure_future(says("a", ClaimRoot(cluster("a"), "", 0)))
        await asyncio.sleep(0)
        await says("b", AskRoot(cluster("b").designated))
        await claim
        root = RootIs(Root(cluster("a"), 1))
        assert told == [("a", root), ("b", root)]

    scene(script)


def test_the_log_of_the_point_says_who_is_the_root_when_that_changes(scene, caplog):
    caplog.set_level("INFO")
    other = cluster("a")._replace(designated=Contact("a2", "a", "elsewhere:1"))

    async def script(says, store, told):
        await says("a", ClaimRoot(cluster("a"), "", 0))
        for root in (cluster("a"), other, other):
            await says("a", RenewRoot(Root(root, 1)))

    scene(script)
    assert [one.message for one in caplog.records if "point" in one.name] == [
        "cluster a is the root of the tree now; its designated broker is a",
        "cluster a is the root of the tree now; its designated broker is a2",
    ]


def test_a_root_that_lives_is_not_kept_each_time(scene):
    async def script(says, store, told):
        await says("a", ClaimRoot(cluster("a"), "", 0))
        store.error = AssertionError("kept again")
        await says("a", RenewRoot(Root(cluster("a"), 1)))
        await says("b", AskRoot(cluster("b").designated))
        assert told[-1] == ("b", RootIs(Root(cluster("a"), 1)))

    scene(script)


def test_a_term_that_no_take_overs_lead_to_ends_the_link_of_who_says_it(scene):
    async def script(says, store, told):
        with pytest.raises(ValueError, match="no elections can have reached it"):
            await says("a", RenewRoot(Root(cluster("a"), 2**63 - 1)))
        await says("b", AskRoot(cluster("b").designated))
        assert told == [("b", RootIs(None))]

    scene(script)


def test_who_stands_for_the_root_is_told_though_that_cannot_be_kept(scene):
    async def script(says, store, told):
        await says("a", ClaimRoot(cluster("a"), "", 0))
        store.error = sqlalchemy.exc.OperationalError("", {}, Exception("disk is full"))
        other = Contact("a2", "a", "elsewhere:1")
        renewed = Root(cluster("a")._replace(designated=other), 1)
        await says("a2", RenewRoot(renewed))
        await says("b", ClaimRoot(cluster("b"), "", 0))
        assert told[1:] == [("b", RootIs(renewed))]

    scene(script)


class Administrator(Peer):
    """Notes whom the point tells of."""

    peer = Hello(KeyRole.BROKER, "administrator")

    def __init__(self, told):
        self._told = told

    def send(self, message):
        self._told.extend(message.links)


def test_the_point_tells_of_all_members_of_the_root_for_a_map(scene, monkeypatch):
    """When the one that stands for the root was killed, the others tell of the rest."""
    described = []

    async def script(says, store, told):
        root = cluster("a")._replace(members=(Contact("a1", "a", "x:1"), Contact("a2", "a", "x:2")))
        await says("a", RenewRoot(Root(root._replace(designated=root.members[1]), 1)))
        monkeypatch.setattr("test_running_point.Peer", lambda name: Administrator(described))
        await says("", Describe())
        assert [one.name for one in described] == ["a2", "a1"]

    scene(script)


@pytest.mark.parametrize(("linked", "told"), [("abc", "a"), ("bc", "abc")], ids=["whole", "no root"])
def test_the_point_tells_of_all_that_are_linked_to_it_where_the_root_is_not(tmp_path, linked, told):
    async def script():
        point = PointProcess(PointSettings(key=tmp_path, data=tmp_path), Key.new(), Store(), "here:1")
        point.point.root = Root(cluster("a"), 1)
        point.board.brokers.update({name: Peer(name) for name in linked})
        described = []
        point.hear(Administrator(described), Describe())
        assert described == [Contact(name, name, "somewhere:1") for name in told]

    asyncio.run(script())
