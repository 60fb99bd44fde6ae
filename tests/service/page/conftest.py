"""Servers for the tests of this folder."""

from functools import partial

import pytest
from argon2 import PasswordHasher

from rtfilter.service.access import passwords, tokens
from rtfilter.service.access.passwords import Passwords
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users
from service.running import running

ROLES = {"root": ["admin"], "ann": ["subscriber"]}


@pytest.fixture
def server(tmp_path):
    """A server without users."""
    with running(tmp_path / "served") as found:
        yield found


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A server with users; `tokens` has that of each."""
    monkeypatch.setattr(passwords, "PasswordHasher", partial(PasswordHasher, 1, 8, 1))  # quick
    database = engine(f"sqlite:///{tmp_path}/log.sqlite")
    users, made, hasher = Users(database), {}, Passwords()
    for name, roles in ROLES.items():
        users.add(name, hasher.hash(f"the password of {name}"), roles)
        made[name] = tokens.new()
        users.add_token(name, tokens.digest(made[name]))
    database.dispose()
    with running(tmp_path) as found:
        found.tokens = made
        yield found
