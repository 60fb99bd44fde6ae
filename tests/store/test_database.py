"""Addresses of databases, of which no message shows any."""

import re
import sys

import pytest

from rtfilter.service.settings import SettingsError, settings
from rtfilter.store.database import AddressError, postgresql


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql", "postgres"])
def test_the_driver_is_named(scheme):
    found = postgresql(f"{scheme}://ann:p%40ss@host:1234/name?sslmode=require")
    assert found == "postgresql+psycopg://ann:p%40ss@host:1234/name?sslmode=require"
    assert postgresql(f"{scheme}://ann@/name?host=/run/a") == "postgresql+psycopg://ann@/name?host=%2Frun%2Fa"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("secret", "no address of a database; write it as postgresql+psycopg://"),
        ("", "no address"),
        ("postgresql://ann:secret@host:nan/name", "no address"),
        ("mysql://ann:secret@host/name", "one of PostgreSQL"),
        ("secret://ann:secret@host/name", "one of PostgreSQL"),
        ("sqlite:////secret", "without any it is SQLite in the folder"),
        ("postgresql://ann:very@secret@host/name", "write %40"),
    ],
)
def test_what_is_none_is_told_and_not_shown(tmp_path, url, said):
    with pytest.raises(AddressError, match=re.escape(said)) as refused:
        postgresql(url)
    assert "secret" not in str(refused.value)
    with pytest.raises(SettingsError, match=re.escape(f"--database, or RTFILTER_DATABASE: {refused.value}")):
        settings(data=tmp_path, database=url)


def test_the_driver_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[postgresql\]'$"):
        settings(data="alerts", database="postgresql://ann@host/name")
