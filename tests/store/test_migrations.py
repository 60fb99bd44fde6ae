"""A database of an older version is brought to the last one, whole or not at all."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy

import postgresql
from rtfilter.store.database import VersionError, engine
from rtfilter.store.log import Log
from rtfilter.store.log_tables import STEPS, TABLES, VERSION
from rtfilter.store.user_store import Users
from rtfilter.store.webhook_table import Webhook, WebhookTable
from service.served import ANN, BOB, pairs, publish, served

HERE = Path(__file__).parent


@pytest.fixture
def old(database, tmp_path):
    """The address of a database of version 1."""
    if database.startswith("sqlite"):
        made = sqlite3.connect(tmp_path / "log.sqlite")
        made.executescript((HERE / "version_1.sqlite.sql").read_text())
        made.close()
    else:
        dump = ["-v", "ON_ERROR_STOP=1", "-f", HERE / "version_1.postgresql.sql"]
        address = database.replace("+psycopg", "")
        subprocess.run([postgresql.program("psql"), "-q", *dump, address], check=True, capture_output=True)
    return database


def shape(url):
    """Columns and indexes of all tables of the log."""
    made = engine(url)
    found = sqlalchemy.inspect(made)
    told = {
        name: (
            [(one["name"], one["nullable"]) for one in found.get_columns(name)],
            sorted((one["name"], *one["column_names"]) for one in found.get_indexes(name)),
        )
        for name in found.get_table_names()
        if name in TABLES.tables
    }
    made.dispose()
    return told


def version(url):
    made = engine(url)
    with made.connect() as connection:
        text = sqlalchemy.text("SELECT value FROM state WHERE name = 'version'")
        found = connection.execute(text).scalar()
    made.dispose()
    return found


@postgresql.smoke
def test_an_old_database_becomes_as_a_new_one(old, tmp_path):
    new = f"sqlite:///{tmp_path}/new.sqlite"
    for url in (old, new):
        Log(engine(url)).close()
    assert shape(old) == shape(new)
    assert version(old) == version(new) == VERSION


@postgresql.smoke
def test_all_that_was_there_is_served(old, tmp_path):
    async def look(pipeline):
        assert pairs(pipeline, ANN) == {(11, 2)}
        assert pairs(pipeline, BOB) == {(at, 3) for at in (5, 6, 10, 11)}
        assert (await pipeline.subscriptions.show(ANN, 2)).wish.where == "price > 15"
        assert await publish(pipeline, 7, 20, 3, symbol="A", key="k1") == [5, 6, 7]  # once
        (at,) = await publish(pipeline, 17)
        assert at == 12
        assert pairs(pipeline, ANN) == {(11, 2), (12, 2)}

    served(tmp_path / "data", look, url=old, clock=lambda: 1_800_000_001.0)
    made = engine(old)
    known = Users(made).read()
    made.dispose()
    assert [*known.accounts] == [one.user for one in known.tokens.values()] == ["ann"]


@postgresql.smoke
def test_webhooks_that_were_there_have_not_failed(old):
    before = sqlalchemy.Table(
        "webhooks",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("user", sqlalchemy.Text, primary_key=True),
        *(sqlalchemy.Column(name, sqlalchemy.Text) for name in ("url", "reason")),
        *(sqlalchemy.Column(name, sqlalchemy.LargeBinary) for name in ("salt", "key")),
        *(sqlalchemy.Column(name, sqlalchemy.Float) for name in ("made", "parked")),
    )
    row = {"user": "ann", "url": "https://ann.example/", "salt": b"salt", "key": b"key", "made": 1.0}
    made = engine(old)
    with made.begin() as connection:
        before.create(connection)
        connection.execute(sqlalchemy.insert(before).values(**row))
    Log(made)
    assert WebhookTable(made).read() == [Webhook(**row, failures=0)]
    made.dispose()


def test_each_step_is_told_and_a_new_database_needs_none(old, tmp_path, caplog):
    Log(engine(f"sqlite:///{tmp_path}/new.sqlite")).close()
    assert caplog.messages == []
    for _ in range(2):
        Log(engine(old)).close()
    told = [f"the database is brought from version {n} to {n + 1}" for n in range(1, VERSION)]
    assert caplog.messages == told


@pytest.mark.parametrize("number", [0, VERSION + 1])
def test_another_version_is_refused_and_left_alone(old, number):
    made = engine(old)
    with made.begin() as connection:
        connection.exec_driver_sql(f"UPDATE state SET value = {number} WHERE name = 'version'")
    before = shape(old)
    with pytest.raises(VersionError, match=f"of version {number}, and this rtfilter uses {VERSION}"):
        Log(made)
    made.dispose()
    assert (version(old), shape(old)) == (number, before)


KILLED = """
import os, sys
from rtfilter.store import log
from rtfilter.store.database import engine

def killed(connection):
    os._exit(9)

log.STEPS = (*log.STEPS, killed)
log.Log(engine(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_kill_between_two_steps_leaves_what_was_there(old):
    before = shape(old)
    run = subprocess.run([sys.executable, "-c", KILLED, old], env=os.environ, timeout=100)
    assert run.returncode == 9
    assert (version(old), shape(old)) == (1, before)
    Log(engine(old)).close()
    assert version(old) == 1 + len(STEPS)
