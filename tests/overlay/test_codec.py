"""Messages as bytes, and what is none."""

import msgspec
import pytest

from experiments.simulation import event_messages
from experiments.simulation.event_messages import Acknowledge, Event, EventId
from rtfilter.overlay.codec import Codec, encoded
from rtfilter.overlay.membership import Contact
from rtfilter.overlay.membership.contacts import Standing
from rtfilter.overlay.membership.election import Heartbeat, Member
from rtfilter.overlay.membership.multicast import Numbered

HERE = Contact("a", "A", "here:1")


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -1])
@pytest.mark.parametrize(
    "message",
    [
        lambda number: Event(EventId("a", 1, number), "trade", {"x": 1.0}),
        lambda number: Acknowledge(EventId("a", number, 1)),
        lambda number: Heartbeat(HERE, number, (Member(HERE, 1),), Standing()),
        lambda number: Heartbeat(HERE, 1, (Member(HERE, number),), Standing()),
    ],
    ids=["number", "incarnation", "term", "member"],
)
def test_a_number_that_no_database_takes_is_in_no_message(message, number):
    codec = event_messages.codec()
    assert codec.decoded(encoded(message(2**63 - 1))) == message(2**63 - 1)
    with pytest.raises(ValueError, match="this is no message"):
        codec.decoded(encoded(message(number)))


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        msgspec.msgpack.encode({"message": "Sword"}),
        msgspec.msgpack.encode({"message": "Confirm", "id": 1}),
        encoded(Numbered("a", 1, 1, {"message": "Sword"})),
    ],
    ids=["empty", "not MessagePack", "deep", "unknown", "of a wrong type", "within a multicast"],
)
def test_rubbish_is_no_message(rubbish):
    with pytest.raises(ValueError, match="this is no message"):
        Codec().decoded(rubbish)


def test_no_number_is_missing_from_the_rule():
    for kind in event_messages.codec().kinds:
        schema = msgspec.json.schema(kind)
        for name, part in schema["$defs"].items():
            for field in (*part.get("properties", {}).values(), *part.get("prefixItems", ())):
                if field.get("type") == "integer":
                    assert (field.get("minimum"), field.get("maximum")) == (0, 2**63 - 1), (kind, name)
