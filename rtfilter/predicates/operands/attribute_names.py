"""Names of attributes in SQL conditions and messages (normative text: `docs/predicates.md`)."""

from __future__ import annotations

import re
from typing import Final

WORD: Final = r"[^\W\d][\w\u0300-\u036f]*"
"""Regular expression of a name, or a part of one, that needs no double quotes. Accents may be separate."""
RESERVED: Final = frozenset(("AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
"""Words that are names of attributes only in double quotes, in any case."""

_NAME: Final = re.compile(WORD)


def written(name: str) -> str:
    """Return a name in the notation of `where`, in double quotes if it needs them."""
    plain = all(_NAME.fullmatch(part) and part.upper() not in RESERVED for part in name.split("."))
    return name if plain else quoted(name)


def quoted(name: str) -> str:
    """Return a name in double quotes; a double quote in it is doubled."""
    return '"' + name.replace('"', '""') + '"'
