"""The state of a site beside the log: the term of its elections, the root, positions of other sites."""

from __future__ import annotations

import sqlalchemy as sql

from rtfilter.store.database import writing

_TABLES = sql.MetaData()
_SITES = sql.Table(
    "site_state",
    _TABLES,
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("value", sql.LargeBinary, nullable=False),
)


class SiteTable:
    """Values by name, for any thread. The table is made if it does not exist."""

    def __init__(self, engine: sql.Engine) -> None:
        self._engine, self._writing = engine, writing(engine)
        with self._writing.begin() as connection:
            _TABLES.create_all(connection)

    def get(self, name: str) -> bytes | None:
        """Return a value, or None."""
        with self._engine.connect() as connection:
            found = connection.execute(sql.select(_SITES.c.value).where(_SITES.c.name == name)).scalar()
        return None if found is None else bytes(found)

    def put(self, name: str, value: bytes) -> None:
        """Store a value durably."""
        with self._writing.begin() as connection:
            connection.execute(sql.delete(_SITES).where(_SITES.c.name == name))
            connection.execute(sql.insert(_SITES).values(name=name, value=value))
