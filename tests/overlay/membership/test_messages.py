"""What memberships say goes over a wire as it is, and memberships bear what they do not expect."""

from functools import reduce
from operator import or_

import msgspec
import pytest

from overlay.membership.simulated import Network
from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.membership import Contact, Membership, MembershipSettings
from rtfilter.overlay.membership.contacts import RENDEZVOUS_POINT, MembershipMessage
from rtfilter.overlay.membership.multicast import Numbered

MESSAGES = tuple(MembershipMessage.__subclasses__())
ANY = reduce(or_, MESSAGES)


class Note(BrokerMessage, frozen=True):
    text: str


def talk():
    """One message of each kind at least, as they were sent in a network with faults."""
    network = Network(["a1", "a2", "b1", "b2", "c1", "d1"], 4, MembershipSettings(repairs=4))
    network.run(10)
    network.loss = 0.3
    for number in range(50):
        network.multicast("a1", Note(f"{number}"))
        network.run(1)
    network.loss = 0.0
    network.run(10)
    network.swallows = lambda one, other, message: isinstance(message, Numbered)
    for number in range(10):  # more than are kept
        network.multicast("a2", Note(f"{number}"))
    network.run(1)
    network.swallows = lambda one, other, message: False
    root = network.point.root.cluster.cluster
    for name in [name for name in network.brokers if name.startswith(root)]:
        network.crash(name)
    network.run(30)
    for name in ("c1", "d1"):  # before anyone has missed them
        network.crash(name)
        network.start(name)
    network.run(10)
    return network


NETWORK = talk()
SAID = [message for _, _, _, message in NETWORK.sent]


@pytest.mark.parametrize("kind", MESSAGES)
def test_each_kind_is_said_and_read_back_as_it_was(kind):
    said = [message for message in SAID if type(message) is kind]
    assert said
    for message in said[:100]:
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ANY)
        if kind is Numbered:
            read = msgspec.structs.replace(read, body=msgspec.convert(read.body, Note))
        assert read == message


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_broker_that_has_just_started_bears_any_message(kind):
    for message in [message for message in SAID if type(message) is kind][:20]:
        for leads in (False, True):
            broker = Membership(Contact("c1", "c"))
            broker.tick(0.0)
            if leads:
                broker.tick(4.0)
            assert broker.place.leads == leads
            for dispatch in broker.receive(message, RENDEZVOUS_POINT, 4.1):
                msgspec.msgpack.encode(dispatch.message)
            broker.tick(9.0)


def test_what_is_handed_up_is_what_was_multicast():
    heard = {
        name: [message for _, message in NETWORK.handed_up[name] if isinstance(message, Note)]
        for name in ("a1", "a2")
    }
    assert heard["a2"] == [Note(f"{number}") for number in range(50)]
    assert heard["a1"] == [Note(f"{number}") for number in range(6, 10)]  # the last that are kept


@pytest.mark.parametrize("wrong", [("", "c", 1), ("c1", "", 1), ("c1", "c", 0)])
def test_a_broker_needs_a_name_a_cluster_and_an_incarnation(wrong):
    name, cluster, incarnation = wrong
    with pytest.raises(ValueError, match="needs a name, a cluster"):
        Membership(Contact(name, cluster), incarnation=incarnation)
