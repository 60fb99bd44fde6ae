"""Databases for the tests of this folder, which see them by the fixture `database`."""

import pytest
import sqlalchemy

import postgresql

MARKS = (pytest.mark.slow, pytest.mark.needs("postgresql"), pytest.mark.xdist_group("postgresql"))


def pytest_generate_tests(metafunc):
    """Run tests of a database on SQLite and PostgreSQL: on the latter, most of them with `--long` only."""
    if "database" in metafunc.fixturenames:
        short = hasattr(metafunc.function, "on_postgresql")
        marks = MARKS if short else (*MARKS, pytest.mark.long)
        kinds = ["sqlite", pytest.param("postgresql", marks=marks)]
        metafunc.parametrize("database", kinds, indirect=True)


@pytest.fixture(scope="session")
def server():
    """A server of PostgreSQL for all tests."""
    with postgresql.running() as made:
        yield made


@pytest.fixture
def database(request, tmp_path):
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/log.sqlite"
    url = request.getfixturevalue("server").url
    made = sqlalchemy.create_engine(url)
    with made.begin() as connection:
        connection.execute(sqlalchemy.text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
    made.dispose()
    return url
