"""Internet Protocol addresses in text, and their networks (CIDR, RFC 4632 and RFC 4291)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, ip_address, ip_network
from typing import Final

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import numbered, shown
from rtfilter.predicates.operands.text_comparison import Reason
from rtfilter.predicates.operands.text_comparison import starts as caseless_starts

_LONGEST: Final = 45
"""Characters of the longest address: IPv6 that ends in dotted IPv4."""
_GROUP: Final = 16
"""Bits of one group of an IPv6 address."""


def canonical_network(text: str) -> str:
    """Return a network, such as ``10.0.0.0/8``, in its canonical form: no host bits, IPv6 compressed.

    Raises `PredicateError`: the text is no network with a slash and a number of bits.
    """
    bits = text.rpartition("/")[2]
    try:
        if (
            "/" in text
            and "%" not in text
            and bits.isascii()
            and bits.isdigit()
            and len(text) <= _LONGEST + 4
        ):
            return str(ip_network(text, strict=False))
    except ValueError:
        pass
    raise PredicateError(f"{shown(text)} is no network; write one as '10.0.0.0/8' or '2001:db8::/32'")


def is_in_network(value: str, network: str) -> bool:
    """Return whether a value is an address in a canonical network; other text is in none."""
    found = address(value)
    if found is None:
        return False
    version, bits, start = _network(network)
    return found[0] == version and found[1] >> bits == start


def why_outside(found: str, network: str) -> Reason:
    """Return the reason why a value is no address in a canonical network."""
    known, (version, host_bits, start) = address(found), _network(network)
    if known is None:
        return Reason("no IP address")
    if known[0] != version:
        return Reason(f"an address of IPv{known[0]}, not IPv{version}", None, 0)
    length = ip_network(network).prefixlen
    agree = length - (known[1] >> host_bits ^ start).bit_length()
    return Reason(f"{agree} of {numbered(length, 'leading bit')} agree", None, agree)


def address(value: str) -> tuple[int, int] | None:
    """Return the version and the number of an address in text; None for other text."""
    return _address(value) if len(value) <= _LONGEST and "%" not in value else None


def network_starts(network: str, enough: int) -> list[str]:
    """Return the possible beginnings, in text, of addresses in a network, as `text_comparison.starts` does.

    They distinguish networks whose mask is on a byte boundary, in IPv6 only by the first group.
    """
    found = ip_network(network)
    if isinstance(found, IPv4Network):
        whole = found.prefixlen // 8
        text = ".".join(str(found.network_address).split(".")[:whole])
        return [text + "." if 0 < whole < 4 else text]
    group = int(found.network_address) >> 128 - _GROUP
    if found.prefixlen < _GROUP or group < 0x1000:  # may be written with leading zeros, or left out
        return [""]
    return caseless_starts(f"{group:x}:", enough)


@lru_cache(maxsize=65_536)
def _address(value: str) -> tuple[int, int] | None:
    try:
        found = ip_address(value)
    except ValueError:
        return None
    return found.version, int(found)


@lru_cache(maxsize=65_536)
def _network(network: str) -> tuple[int, int, int]:
    """Return the version of a network, its number of host bits, and the bits before these."""
    found = ip_network(network)
    bits = found.max_prefixlen - found.prefixlen
    return found.version, bits, int(found.network_address) >> bits
