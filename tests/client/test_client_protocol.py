"""A connection's directives, tags and states, without a server."""

import json

import pytest

from rtfilter.basics.session_states import TABLE, Directive, State
from rtfilter.client.client_errors import ClientError, ProtocolError, UnwritableError
from rtfilter.client.protocol import Confirmation, Connected, Error, EventDelivery, Protocol, encoded


def connected():
    protocol = Protocol()
    protocol.ask(Directive.CONNECT, 0, user="ann")
    protocol.hear('{"directive": "CONNECTED", "tag": 0, "connection": "c"}')
    return protocol


def answer(tag, directive="ACK", **more):
    return json.dumps({"directive": directive, "tag": tag, **more})


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("directive", Directive)
def test_what_a_state_does_not_allow_is_not_sent(state, directive):
    protocol = Protocol()
    protocol.state = protocol.expected = state
    if directive in TABLE[state]:
        message = json.loads(protocol.ask(directive, 3, more=1, left_out=None))
        assert message == {"directive": directive, "tag": 3, "more": 1}
        assert protocol.state is state
        assert protocol.expected is TABLE[state][directive]
    else:
        with pytest.raises(ClientError, match=f"{directive} is not possible when {state}"):
            protocol.ask(directive, 3)
        assert protocol.expected is state


@pytest.mark.parametrize("bad", [float("nan"), {"a": [float("inf")]}, object()])
def test_of_several_events_the_one_that_json_cannot_say_is_told(bad):
    with pytest.raises(UnwritableError, match=r"^(events\[1\].price|this cannot be)") as refused:
        encoded([{"price": None}, {"price": bad}, {"price": bad}], "events")
    assert refused.value.row == 1
    with pytest.raises(UnwritableError, match=r"^(event.price|this cannot be)") as refused:
        encoded({"price": bad}, "event")
    assert refused.value.row is None


def test_directives_are_said_before_the_last_is_answered():
    protocol = connected()
    for tag, directive in enumerate(["READY", "STOP", "SUBSCRIBE", "READY"], 1):
        protocol.ask(Directive(directive), tag)
    assert (protocol.state, protocol.expected) == (State.CONNECTED, State.RECEIVING)
    protocol.hear(answer(1))
    assert protocol.state is State.RECEIVING
    protocol.hear(answer(2))
    refused = protocol.hear(answer(3, "ERROR", error="no", kind="predicate"))
    assert refused == Error("no", "predicate", 3)
    assert (protocol.state, protocol.expected) == (State.CONNECTED, State.RECEIVING)
    protocol.hear(answer(4))
    assert protocol.state is State.RECEIVING


def test_a_refused_directive_changes_no_state():
    protocol = connected()
    protocol.ask(Directive.READY, 1)
    protocol.ask(Directive.PUBLISH, 2)
    protocol.hear(answer(1, "ERROR", error="no"))
    assert (protocol.state, protocol.expected) == (State.CONNECTED, State.CONNECTED)


def test_messages_are_typed_and_may_have_more_than_is_known():
    protocol = connected()
    text = {
        "directive": "EVENT",
        "number": 1,
        "position": 5,
        "subscriptions": [1],
        "event": {"x": 2},
        "new": 1,
    }
    assert protocol.hear(json.dumps(text)) == EventDelivery(1, 5, (1,), {"x": 2})
    protocol.ask(Directive.GET, 1)
    assert protocol.hear(answer(1, pending=3)) == Confirmation(tag=1, pending=3)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"directive": "EVENT"}',
        '{"directive": "OTHER"}',
        '{"directive": "ACK"}',
        '{"directive": "ACK", "tag": 9}',
        '{"directive": "ERROR", "error": "this is not JSON"}',
        '{"directive": "CONNECTED", "connection": "c", "tag": 1}',
    ],
)
def test_what_is_not_understood_is_told(text):
    protocol = connected()
    protocol.ask(Directive.READY, 1)
    with pytest.raises(ProtocolError, match="the server"):
        protocol.hear(text)


def test_connect_may_be_refused():
    protocol = Protocol()
    protocol.ask(Directive.CONNECT, 0, token="t")
    assert isinstance(protocol.hear(answer(0, "ERROR", error="no", kind="unauthenticated")), Error)
    assert protocol.expected is State.PRE_CONNECTED
    protocol.ask(Directive.CONNECT, 1, token="u")
    assert isinstance(protocol.hear(answer(1, "CONNECTED", connection="c")), Connected)


@pytest.mark.parametrize("value", [float("nan"), {"a": [1, float("inf")]}, ({"a": -float("inf")},)])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(ClientError, match="NaN"):
        encoded(value)
    assert bytes(encoded({"a": None, "b": 1.5})) == b'{"a":null,"b":1.5}'


@pytest.mark.parametrize("value", [object(), {1: {2: object()}}])
def test_what_is_no_value_is_refused(value):
    with pytest.raises(ClientError, match="cannot be written as JSON"):
        encoded(value)
