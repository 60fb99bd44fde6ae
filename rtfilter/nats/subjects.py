"""Keys, subjects, shards and message ids: pure functions of texts."""

from __future__ import annotations

import re
from string import Formatter
from typing import Final
from zlib import crc32

DEFINITION: Final = "=definition"
"""The key with the definition of the filter."""
MARK: Final = "=mark"
"""The key that a worker writes if it must know the end of the bucket; see `rtfilter.nats.bucket`."""
RESERVED: Final = frozenset((DEFINITION, MARK))
"""Keys that are no subscriptions; `key_of` never makes them."""
FIELDS: Final = ("user", "subscription")
"""Names that the subject of matches may contain in braces."""
_LITERAL: Final = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_ESCAPED: Final = re.compile(rb"=([0-9A-F]{2})")


def key_of(id: str) -> str:
    """Return a key of a bucket for any text; `id_of` returns the text.

    Letters, digits, ``-``, ``_``, ``/`` and single dots stay; ``=XX`` stands for each other byte of UTF-8.
    Raises `ValueError` for an empty text.
    """
    if not id:
        raise ValueError("an id of a subscription is not empty")
    key = _escaped(id, r"[^-/\w.]")
    return re.sub(r"^\.|\.$|(?<=\.)\.", "=2E", key)


def id_of(key: str) -> str:
    """Return the text that a key stands for; a key that `key_of` did not make stands for itself."""
    found = _ESCAPED.sub(lambda one: bytes([int(one[1], 16)]), key.encode())
    try:
        id = found.decode()
        return id if id and key_of(id) == key else key
    except UnicodeDecodeError:
        return key


def token_of(text: str) -> str:
    """Return a single token of a subject for a text, such as a user's name, by the same escapes."""
    return _escaped(text, r"[^-\w]")


def _escaped(text: str, pattern: str) -> str:
    def escape(found: re.Match[str]) -> str:
        return "".join(f"={byte:02X}" for byte in found[0].encode())

    return re.sub(pattern, escape, text, flags=re.ASCII)


def shard_of(key: str, count: int) -> int:
    """Return the shard of a key, from 0; the same in every process and version."""
    return crc32(key.encode()) % count


class BucketShard:
    """A part of the subscriptions: number `number` of `count`, from 1."""

    def __init__(self, number: int = 1, count: int = 1) -> None:
        if not 1 <= number <= count:
            raise ValueError(f"a shard is K/N with K from 1 to N, not {number}/{count}")
        self.number, self.count = number, count

    @classmethod
    def of(cls, text: str) -> BucketShard:
        """Return the shard of a text like ``2/5``; raise `ValueError` for another text."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
        if found is None:
            raise ValueError(f"a shard is K/N, such as 2/5, not {text!r}")
        return cls(int(found[1]), int(found[2]))

    def has(self, key: str) -> bool:
        """Return whether a subscription is in this shard."""
        return self.count == 1 or shard_of(key, self.count) == self.number - 1

    @property
    def suffix(self) -> str:
        """Return an ending for names, which is empty for the whole."""
        return "" if self.count == 1 else f"-{self.number}-{self.count}"


class Subject:
    """The subject of matches: a text that may contain one field, ``{user}`` or ``{subscription}``.

    Attributes
    ----------
    field : str or None
        The receiver of a message: a user, a subscription, or with None everybody.
    wildcard : str
        The subject with ``*`` for the field; ``>`` for a subscription at the end, whose key may have dots.

    Raises
    ------
    ValueError
    """

    def __init__(self, template: str) -> None:
        try:
            parts = list(Formatter().parse(template))
        except ValueError as error:
            raise ValueError(f"{template!r} is no subject: {error}") from None
        fields = [name for _, name, _, _ in parts if name is not None]
        if len(fields) > 1 or any(name not in FIELDS for name in fields) or any(a or b for *_, a, b in parts):
            raise ValueError(
                f"{template!r} may contain one of {{user}} and {{subscription}}, and no other braces"
            )
        if not _LITERAL.fullmatch(template):
            raise ValueError(
                f"{template!r} is no subject: use tokens with dots between, without spaces, *, >"
            )
        self.field = fields[0] if fields else None
        self._template = template
        placeholder = self._field = f"{{{self.field}}}"
        if self.field is not None and placeholder not in template.split("."):
            raise ValueError(f"in {template!r}, put dots around {placeholder}, so that it is a whole token")
        last = self.field == "subscription" and template.endswith(placeholder)
        self.wildcard = template.replace(placeholder, ">" if last else "*")
        if self.field == "subscription" and not last:
            raise ValueError(f"in {template!r}, {placeholder} is last, because keys may have dots")

    def of(self, receiver: str) -> str:
        """Return the subject for a receiver."""
        if self.field is None:
            return self._template
        token = token_of(receiver) if self.field == "user" else receiver
        return self._template.replace(self._field, token)


def message_id(origin: str, sequence: int, row: int, receiver: str) -> str:
    """Return the id of a match, the same whenever the event is matched again.

    Parameters
    ----------
    origin : str
        Names the filter, its shard, and the stream of the events with the moment of its creation.
    sequence, row : int
        The message of the event in its stream, and the row of the event in the message.
    receiver : str
        May have any characters.
    """
    return f"{origin}.{sequence}.{row}.{token_of(receiver)}"


def origin_of(filter: str, shard: BucketShard, stream: str, created: str) -> str:
    """Return the origin of `message_id`."""
    made = crc32(created.encode())
    return f"{filter}{shard.suffix}.{stream}.{made:08x}"
