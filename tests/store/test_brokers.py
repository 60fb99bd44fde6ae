"""What a broker keeps, in SQLite and PostgreSQL."""

import pytest
import sqlalchemy as sql

import postgresql
from rtfilter.store import broker_store, database, log_tables
from rtfilter.store.broker_store import (
    BrokerMemory,
    BrokerStore,
    ClientSubscription,
    Gone,
    Publication,
    Settled,
)
from rtfilter.store.database import engine
from rtfilter.store.log import Log, TakenError


@pytest.fixture
def opened(database):
    """Opens the database of a test, again and again."""
    made = []

    def open_it():
        made.append(engine(database))
        return made[-1]

    yield open_it
    for one in made:
        one.dispose()


JFK = ClientSubscription("ann", "1", "flights", "origin = 'JFK'")


@postgresql.smoke
def test_what_was_committed_is_there_after_a_start(opened):
    store = BrokerStore(opened(), "a")
    first = Publication("client bob", 7, 1, "bob", "flights", b"one")
    second = Publication("client bob", 7, 2, "bob", "flights", b"two")
    store.commit([JFK, first, second, BrokerMemory(b"old"), BrokerMemory(b"new")])
    store.commit([Settled(*first[:3])])
    again = BrokerStore(opened(), "a")
    assert again.subscriptions() == [JFK]
    assert again.publications() == [second]
    assert again.memory() == b"new"


@postgresql.smoke
def test_a_subscription_is_replaced_and_removed_by_its_key(opened):
    store = BrokerStore(opened(), "a")
    store.commit([JFK, JFK._replace(predicate="origin = 'EWR'"), JFK._replace(key="2")])
    assert {one.predicate for one in store.subscriptions()} == {"origin = 'EWR'", "origin = 'JFK'"}
    store.commit([Gone("ann", "1"), Gone("ann", "1"), Gone("nobody", "2")])
    assert [one.key for one in store.subscriptions()] == ["2"]


def test_each_start_has_a_higher_incarnation_also_by_the_clock(opened, monkeypatch):
    found = []
    for now in (5.0, 5.0, 1.0, 9.0):
        monkeypatch.setattr(broker_store.time, "time", lambda now=now: now)
        found.append(BrokerStore(opened(), "a").incarnation)
    assert found == [5, 6, 7, 9]


@postgresql.smoke
def test_who_has_started_before_may_write_no_more(opened):
    former = BrokerStore(opened(), "a")
    BrokerStore(opened(), "a")
    with pytest.raises(TakenError):
        former.commit([JFK])
    assert former.subscriptions() == []


def test_brokers_of_one_database_do_not_see_each_other(opened):
    one, other = BrokerStore(opened(), "a"), BrokerStore(opened(), "b")
    one.commit([JFK, Publication("o", 1, 1, "bob", "flights", b"one"), BrokerMemory(b"of a")])
    other.commit([Gone("ann", "1"), Settled("o", 1, 1)])
    assert (other.subscriptions(), other.publications(), other.memory()) == ([], [], None)
    assert one.subscriptions() == [JFK]
    assert len(one.publications()) == 1


@postgresql.smoke
def test_what_is_not_shared_has_one_broker(opened):
    BrokerStore(opened(), "bonn", shared=False)
    for _ in range(2):
        with pytest.raises(broker_store.OwnedError, match="that of bonn") as caught:
            BrokerStore(opened(), "zzz", shared=False)
        assert caught.value.owners == ["bonn"]
    BrokerStore(opened(), "bonn", shared=False)
    BrokerStore(opened(), "zzz")
    BrokerStore(opened(), "zzz", shared=False)  # as it was started before


def test_publications_come_in_their_order(opened):
    store = BrokerStore(opened(), "a")
    given = [Publication("o", i, n, "bob", "t", b"") for i in (2, 1) for n in (10, 9, 100)]
    store.commit(given)
    assert store.publications() == sorted(given)


def test_a_commit_is_whole_or_not_at_all(opened):
    store = BrokerStore(opened(), "a")
    one = Publication("o", 1, 1, "bob", "flights", b"one")
    with pytest.raises(sql.exc.IntegrityError):
        store.commit([JFK, one, one])
    assert store.subscriptions() == []


@postgresql.smoke
def test_the_tables_of_brokers_have_a_version_of_their_own(opened, monkeypatch):
    made = opened()
    BrokerStore(made, "a").commit([JFK])
    Log(made)  # a server in the same database
    step = lambda connection: connection.exec_driver_sql(  # noqa: E731
        "ALTER TABLE broker_subscriptions ADD COLUMN since INTEGER"
    )
    monkeypatch.setattr(broker_store, "STEPS", (step,))
    store = BrokerStore(made, "a")
    assert [one[:4] for one in store.subscriptions()] == [JFK]
    with made.connect() as connection:
        columns = {one["name"] for one in sql.inspect(connection).get_columns("broker_subscriptions")}
        versions = [
            connection.execute(sql.select(t.c.value).where(t.c.name == "version")).scalar()
            for t in (broker_store.STATE, log_tables.STATE)
        ]
    assert "since" in columns
    assert versions == [2, log_tables.VERSION]
    monkeypatch.setattr(broker_store, "STEPS", ())
    with pytest.raises(database.VersionError):
        BrokerStore(made, "a")
