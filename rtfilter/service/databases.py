"""The address of a database of PostgreSQL. It may have a password, so no message shows any of it."""

from __future__ import annotations

from typing import Final

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from rtfilter.extras import needed

FORM: Final = "postgresql+psycopg://user:password@host/name"
"""The form of an address."""
_DRIVER: Final = "postgresql+psycopg"


class AddressError(ValueError):
    """This is no address of a database of PostgreSQL."""


def postgresql(url: str) -> str:
    """Return the address of a database with the driver that is used.

    Parameters
    ----------
    url : str
        ``postgresql+psycopg://user:password@host/name``, or without ``+psycopg``.

    Raises
    ------
    AddressError
        The text is no such address.
    ModuleNotFoundError
        The driver is not installed.
    """
    try:
        made = make_url(url)
    except (ArgumentError, ValueError):
        raise AddressError(f"this is no address of a database; write it as {FORM}") from None
    if made.drivername not in (_DRIVER, "postgresql", "postgres"):
        raise AddressError(f"a database is one of PostgreSQL, {FORM}; without any it is SQLite in the folder")
    if "@" in (made.host or ""):
        raise AddressError("the address of the database has two @; in a user or password, write %40 for one")
    with needed("postgresql", "a database of PostgreSQL"):
        import psycopg  # noqa: F401
    return made.set(drivername=_DRIVER).render_as_string(hide_password=False)
