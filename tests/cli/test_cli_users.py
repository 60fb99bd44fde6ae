"""``rtfilter users``: users and tokens of a server, also while it runs."""

import asyncio
import io
import os
import re
import sys
from functools import partial

import pytest
from argon2 import PasswordHasher

from rtfilter.cli import FAILED, main, users
from rtfilter.service.access import Access, passwords
from rtfilter.service.access.passwords import Passwords
from rtfilter.store.database import engine
from rtfilter.store.user_store import Users

PASSWORD = "correct horse"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def data(tmp_path):
    return tmp_path / "alerts"


@pytest.fixture
def run(data, monkeypatch, capsys):
    """Run the command with a pipe; gives what it printed, after it succeeded or failed as `fails` says."""

    monkeypatch.setattr(passwords, "PasswordHasher", partial(PasswordHasher, 1, 8, 1))  # quick

    def run(*words, typed=PASSWORD, terminal=False, fails=False):
        stdin = Terminal() if terminal else io.StringIO(f"{typed}\n")
        monkeypatch.setattr(sys, "stdin", stdin)
        code = main(["users", "--data", str(data), *words])
        out, err = capsys.readouterr()
        assert code == (FAILED if fails else 0), err
        assert PASSWORD not in out + err
        return err if fails else out

    return run


@pytest.fixture
def kept(data):
    def kept():
        made = engine(f"sqlite:///{data}/log.sqlite")
        found = Users(made).read()
        made.dispose()
        return found

    return kept


def test_what_a_first_user_makes_in_an_open_folder_is_read_by_nobody_else(run, data):
    data.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        run("add", "ann", "--role", "admin")
    finally:
        os.umask(before)
    assert [path for path in (data, *data.iterdir()) if path.stat().st_mode & 0o077] == []


def test_a_user_and_a_token_are_made_shown_and_taken_away(run, kept):
    run("add", "ann", "--role", "admin")
    run("add", "bob", "--role", "publisher", "--role", "subscriber")
    token = run("token", "bob", "--label", "laptop", "--days", "90").strip()
    assert re.fullmatch(r"rtf_[\w-]{43}", token)
    listed = run("list")
    assert re.search(r"bob  publisher, subscriber  since .*\n  token 1  laptop  made .*, good until ", listed)
    assert token not in listed
    (made,) = kept().tokens.values()
    assert made.expires - made.made == pytest.approx(90 * 86_400, abs=60)
    run("revoke", "1")
    assert "revoked" in run("list")
    run("roles", "bob", "--role", "publisher")
    assert kept().accounts["bob"].roles == {"publisher"}
    run("remove", "bob")
    assert set(kept().accounts) == {"ann"}


def test_a_password_is_changed_and_may_come_from_a_file(run, kept, tmp_path):
    run("add", "ann", "--role", "admin")
    (tmp_path / "secret").write_text("another password\nnot this\n")
    run("password", "ann", "--password-file", str(tmp_path / "secret"))
    hash = kept().accounts["ann"].hash
    assert Passwords().right(hash, "another password")
    assert not Passwords().right(hash, PASSWORD)


@pytest.mark.parametrize(
    ("words", "typed", "told"),
    [
        (["add", "bob", "--role", "publisher"], PASSWORD, "first user must be an admin"),
        (["add", "ann", "--role", "admin"], "short", "8 to 1000 characters"),
        (["add", "ann", "--role", "admin"], "", "8 to 1000 characters"),
        (["add", "ann", "--role", "admin", "--password-file", "nowhere"], "", "nowhere: No such file"),
        (["add", "ann", "--role", "king"], PASSWORD, "invalid choice"),
        (["add", "ann"], PASSWORD, "--role"),
        (["list"], "", "no users yet"),
        (["remove", "ann"], "", "no users yet"),
    ],
)
def test_what_cannot_be_done_is_told(run, words, typed, told):
    assert told in run(*words, typed=typed, fails=True)


def test_errors_of_the_tables_are_told(run):
    run("add", "ann", "--role", "admin")
    for words, told in {
        ("token", "bob"): "no user 'bob'",
        ("revoke", "7"): "no token 7",
        ("add", "ann", "--role", "admin"): "already",
    }.items():
        assert told in run(*words, fails=True)


def test_at_a_terminal_the_password_is_asked_for_twice(run, kept, monkeypatch):
    answers = iter([PASSWORD, PASSWORD, PASSWORD, "correct house"])
    monkeypatch.setattr(users, "getpass", lambda prompt: next(answers))
    run("add", "ann", "--role", "admin", terminal=True)
    assert Passwords().right(kept().accounts["ann"].hash, PASSWORD)
    assert "the two passwords differ" in run("add", "bob", "--role", "admin", terminal=True, fails=True)
    assert set(kept().accounts) == {"ann"}


def test_a_database_that_is_not_there_is_told_without_its_password(run, monkeypatch, tmp_path):
    monkeypatch.setenv("RTFILTER_DATABASE", f"postgresql+psycopg://ann:{PASSWORD}@/x?host={tmp_path}")
    assert "the database: " in run("list", fails=True)
    monkeypatch.setenv("RTFILTER_DATABASE", f"{PASSWORD}, no address")
    assert "the variable RTFILTER_DATABASE: this is no address of a database" in run("list", fails=True)


def test_a_list_without_users_says_how_to_add_one(data, capsys):
    data = data.with_name("my alerts")
    data.mkdir()
    (data / "log.sqlite").touch()  # as a server would
    assert main(["users", "--data", str(data), "list"]) == 0
    assert capsys.readouterr() == (
        "",
        f"rtfilter: there are no users; to add one: rtfilter users --data '{data}' add NAME --role admin\n",
    )


def test_the_folder_may_be_in_the_variable_that_the_server_reads(run, data, monkeypatch, capsys):
    run("add", "ann", "--role", "admin")
    monkeypatch.setenv("RTFILTER_DATA", str(data))
    assert main(["users", "list"]) == 0
    assert capsys.readouterr().out.startswith("ann  admin")
    monkeypatch.setenv("RTFILTER_DATA", "")
    assert main(["users", "list"]) == FAILED
    assert "--data" in capsys.readouterr().err


def test_a_server_that_runs_takes_it(run, data):
    run("add", "ann", "--role", "admin")
    made = engine(f"sqlite:///{data}/log.sqlite")
    now = [0.0]
    access = Access(Users(made), clock=lambda: now[0])
    token = run("token", "ann").strip()
    now[0] += 1.0
    assert asyncio.run(access.token(token)).user == "ann"
    access.close()
    made.dispose()
