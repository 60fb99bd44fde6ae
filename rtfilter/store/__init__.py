"""The state that survives the process, in SQLite or PostgreSQL."""

from rtfilter.basics.extras import needed

with needed("service", "the server"):
    import sqlalchemy as sqlalchemy
