"""Messages as bytes, and what is none."""

import msgspec
import pytest

from rtfilter.overlay.broker_names import EventId
from rtfilter.overlay.membership import Contact
from rtfilter.overlay.membership.contacts import Standing
from rtfilter.overlay.membership.election import Heartbeat, Member
from rtfilter.overlay.running.broker_frames import Codec, LinkError, encoded
from rtfilter.overlay.running.client_messages import ClientPublish, Have

HERE = Contact("a", "A", "here:1")


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -1])
@pytest.mark.parametrize(
    "message",
    [
        lambda number: ClientPublish(EventId("client ann", 1, number), "trade", {"x": 1.0}),
        lambda number: Have(EventId("client ann", number, 1)),
        lambda number: Heartbeat(HERE, number, (Member(HERE, 1),), Standing()),
        lambda number: Heartbeat(HERE, 1, (Member(HERE, number),), Standing()),
    ],
    ids=["number", "incarnation", "term", "member"],
)
def test_a_number_that_no_database_takes_is_in_no_message(message, number):
    codec = Codec()
    assert codec.decoded(encoded(message(2**63 - 1))) == message(2**63 - 1)
    with pytest.raises(LinkError, match="this is no message"):
        codec.decoded(encoded(message(number)))


def test_no_number_is_missing_from_the_rule():
    for kind in Codec().kinds:
        schema = msgspec.json.schema(kind)
        for name, part in schema["$defs"].items():
            for field in (*part.get("properties", {}).values(), *part.get("prefixItems", ())):
                if field.get("type") == "integer":
                    assert (field.get("minimum"), field.get("maximum")) == (0, 2**63 - 1), (kind, name)
