"""Networks of addresses: what is in them, how the addresses in them begin, and what is no network."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import cases
from rtfilter.basics.errors import PredicateError
from rtfilter.predicates.operands.networks import address, canonical_network, is_in_network, network_starts

V4 = st.ip_addresses(v=4, network="10.0.0.0/14") | st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6, network="2001:db8::/30") | st.ip_addresses(v=6)
FORMS = (str, lambda one: str(one).upper(), lambda one: one.exploded)


@given(V4 | V6, V4 | V6, st.integers(0, 128), st.sampled_from(FORMS))
def test_an_address_is_in_a_network_as_the_library_says(first, second, bits, form):
    network = canonical_network(f"{first}/{min(bits, first.max_prefixlen)}")
    assert network == str(ip_network(network))
    for one in (first, second):
        inside = is_in_network(form(one), network)
        assert inside == (ip_address(one) in ip_network(network))
        assert not inside or any(form(one).startswith(start) for start in network_starts(network, 6))


@cases(
    ("network", "beginnings"),
    [
        ("10.0.0.0/8", ["10."]),
        ("10.0.0.0/7", [""]),
        ("10.16.0.0/12", ["10."]),
        ("10.16.0.0/16", ["10.16."]),
        ("10.16.3.128/25", ["10.16.3."]),
        ("10.16.3.1/32", ["10.16.3.1"]),
        ("0.0.0.0/0", [""]),
        ("2001:db8::/32", ["2001:"]),
        ("db8::/32", [""]),
        ("::/0", [""]),
        ("fe80::/10", [""]),
        ("1ab2::/16", ["1AB2:", "1Ab2:", "1aB2:", "1ab2:"]),
    ],
)
def test_how_addresses_begin(network, beginnings):
    assert sorted(network_starts(network, 5)) == sorted(beginnings)


@cases(
    "text",
    [
        "",
        "10.0.0.0",
        "foo",
        "10.0.0.0/33",
        "10.0.0/8",
        "10.0.0.0/-1",
        "10.0.0.0/255.0.0.0",
        "10.0.0.0/",
        "/8",
        "10.0.0.0/8/8",
        "010.0.0.0/8",
        "::/129",
        "::g/8",
        "fe80::1%eth0/64",
        "10.0.0.0/٨",
        f"{10**100}/8",
    ],
)
def test_what_is_no_network_is_refused(text):
    with pytest.raises(PredicateError, match=r"is no network; write one as '10\.0\.0\.0/8'"):
        canonical_network(text)


@cases("text", ["", "10.0.0", "10.0.0.1 ", "10.0.0.01", "::1%lo", "x" * 100, "10.0.0.0/8", "10.0.0.٨"])
def test_text_that_is_no_address_is_in_no_network(text):
    assert address(text) is None
    assert not is_in_network(text, "0.0.0.0/0")


def test_an_ipv4_address_is_in_no_network_of_ipv6():
    assert not is_in_network("10.0.0.1", "::/0")
    assert not is_in_network("::ffff:10.0.0.1", "10.0.0.0/8")
    assert is_in_network("::ffff:10.0.0.1", "::ffff:0:0/96")
