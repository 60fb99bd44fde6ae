"""The origin of an event that came from another site, as the log has it in place of a user.

The text is ``user:site:position:time:neighbour``. No name of a user or a site has a colon.
"""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """The place where an event was published, and the neighbour that it came from."""

    user: str
    site: str
    position: int
    """In the log of that site."""
    at: float
    """The time of that log, in seconds since 1970: a site with a new disk may give a position again."""
    neighbour: str = ""

    @property
    def text(self) -> str:
        """The origin as the log has it."""
        return f"{self.user}:{self.site}:{self.position}:{self.at!r}:{self.neighbour}"


def is_foreign(user: str) -> bool:
    """Return whether an event came from another site, by its user in the log."""
    return ":" in user


def neighbour_of(user: str) -> str:
    """Return the neighbour that an event came from; empty for an event of this site."""
    return user.rpartition(":")[2] if is_foreign(user) else ""


def origin_of(text: str) -> Origin | None:
    """Return the origin of an event, or None for a user of this site."""
    try:
        user, site, position, at, neighbour = text.split(":")
        return Origin(user, site, int(position), float(at), neighbour)
    except ValueError:
        return None
