"""Every state with every directive."""

import pytest

from rtfilter.basics.session_states import TABLE, Directive, State
from rtfilter.service.conversation import after
from rtfilter.service.service_errors import DirectiveError

ALLOWED = {
    ("PRE_CONNECTED", "CONNECT"): "CONNECTED",
    ("CONNECTED", "SUBSCRIBE"): "CONNECTED",
    ("CONNECTED", "UNSUBSCRIBE"): "CONNECTED",
    ("CONNECTED", "GET"): "CONNECTED",
    ("CONNECTED", "ACK"): "CONNECTED",
    ("CONNECTED", "CREDIT"): "CONNECTED",
    ("CONNECTED", "PUBLISH"): "CONNECTED",
    ("CONNECTED", "READY"): "RECEIVING",
    ("CONNECTED", "DISCONNECT"): "DISCONNECTED",
    ("RECEIVING", "STOP"): "CONNECTED",
    ("RECEIVING", "ACK"): "RECEIVING",
    ("RECEIVING", "CREDIT"): "RECEIVING",
    ("RECEIVING", "PUBLISH"): "RECEIVING",
    **{
        (state, directive): state
        for state in ("CONNECTED", "RECEIVING")
        for directive in ("REPLACE", "LIST", "MATCH", "EXPLAIN", "SITE")
    },
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("directive", Directive)
def test_a_directive_leads_on_or_is_refused(state, directive):
    wanted = ALLOWED.get((str(state), str(directive)))
    if wanted is not None:
        assert after(state, directive) == wanted
        return
    with pytest.raises(DirectiveError, match=f"{directive} is not allowed in {state}; allowed: "):
        after(state, directive)


def test_every_state_has_a_row_and_can_be_reached():
    assert set(TABLE) == set(State)
    reached = {State.PRE_CONNECTED} | {to for row in TABLE.values() for to in row.values()}
    assert reached == set(State)
