"""An entry of the bucket as a subscription."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.basics.errors import PredicateError


class BucketChange(NamedTuple):
    """A message of the bucket.

    Attributes
    ----------
    key : str
    revision : int
        Its sequence in the stream of the bucket.
    value : bytes or None
        None if the key was removed.
    created : float
        When the engine stored it, in seconds since 1970.
    """

    key: str
    revision: int
    value: bytes | None
    created: float


class BucketEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The value of a key.

    Attributes
    ----------
    where : str or dict
        An SQL condition or an event pattern.
    user : str
        The receiver; needed if the subject of matches has the user.
    ttl : float, optional
        Seconds from the moment when the engine stored the entry.
    metadata : dict
        For those who read the bucket; workers ignore it.
    """

    where: str | dict[str, Any]
    user: str = ""
    ttl: float | None = None
    metadata: dict[str, Any] | None = None


_decode: Final = msgspec.json.Decoder(BucketEntry).decode


def entry_of(value: bytes, needs_user: bool) -> BucketEntry:
    """Return the entry of a value; raise `PredicateError`, which says what is wrong."""
    try:
        entry = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PredicateError(
            f'the value is no object like {{"where": "price < 10", "user": "ann"}}: {error}'
        ) from None
    if needs_user and not entry.user:
        raise PredicateError('"user" is missing, and the subject of matches has it; add it')
    if entry.ttl is not None and not 0 < entry.ttl < 1e10:
        raise PredicateError(f'"ttl" is a number of seconds above 0, not {entry.ttl}')
    return entry


class BucketRefusal(NamedTuple):
    """A subscription that cannot be used."""

    key: str
    revision: int
    reason: str
