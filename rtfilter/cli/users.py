"""``rtfilter users``: the users of a server, with passwords and tokens."""

from __future__ import annotations

import argparse
import os
import sys
import time
from getpass import getpass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rtfilter.cli.arguments import DATABASE, add_data, natural, positive
from rtfilter.cli.terminal import CommandError, say, show

if TYPE_CHECKING:
    from rtfilter.store.user_store import Users

ROLES = ("publisher", "subscriber", "site", "admin")
DAY = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say who may use a server. A server that runs takes changes within seconds.\n\n"
        "A publisher publishes events, and reads back their own. A subscriber has subscriptions and their\n"
        "deliveries. An admin may do everything; the first user has to be one."
    )
    parser.epilog = (
        "examples:\n"
        "  rtfilter users --data alerts add ann --role admin --password-file ann.password\n"
        "  rtfilter users --data alerts add bob --role publisher --role subscriber "
        "--password-file ann.password\n"
        "  rtfilter users --data alerts token bob --label laptop --days 90\n"
        "  rtfilter users --data alerts list\n"
        "  rtfilter users --data alerts revoke 1\n"
        "  rtfilter users --data alerts remove bob\n\n"
        f"Where the server's database is another one, give it in the variable {DATABASE}."
    )
    add_data(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str, user: bool = True) -> argparse.ArgumentParser:
        made = actions.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
        )
        if user:
            made.add_argument("name", metavar="NAME", help="of the user")
        return made

    add = action("add", "add a user; asks for the password, or reads it from a pipe")
    roles = action("roles", "give a user other roles")
    for one in (add, roles):
        one.add_argument(
            "--role", action="append", required=True, choices=ROLES, help="may be given several times"
        )
    password = action("password", "give a user another password; ends sessions with the old one")
    for one in (add, password):
        one.add_argument("--password-file", metavar="FILE", help="has the password in its first line")
    action("remove", "remove a user and the tokens; ends their sessions")
    token = action("token", "make a token of a user, and show it this once")
    token.add_argument("--label", default="", metavar="TEXT", help="what it is for")
    token.add_argument("--days", type=positive, metavar="N", help="how long it is good (default: for ever)")
    revoke = action("revoke", "let a token be good no more; ends sessions with it", user=False)
    revoke.add_argument("id", type=natural, metavar="ID", help="of the token, as `list` shows it")
    action("list", "show users and tokens", user=False)


def run(arguments: argparse.Namespace) -> int:
    from rtfilter.store.database import AddressError, engine, postgresql
    from rtfilter.store.folder import make
    from rtfilter.store.user_store import Users, UsersError

    # isort: split
    from sqlalchemy.exc import DBAPIError

    folder = arguments.data
    url, of = os.environ.get(DATABASE), ""
    if not url:
        path = folder / "log.sqlite"
        if arguments.action == "add":
            make(folder)
        elif not path.exists():
            raise CommandError(f"{folder} has no users yet: first add one, see rtfilter users --help")
        url, of = f"sqlite:///{path}", f" {path}"
    else:
        try:
            url = postgresql(url)
        except AddressError as error:
            raise CommandError(f"the variable {DATABASE}: {error}") from None
    database = engine(url)
    try:
        _do(arguments, Users(database))
    except UsersError as error:
        raise CommandError(str(error)) from None
    except DBAPIError as error:
        raise CommandError(f"the database{of}: {error.orig}") from None
    finally:
        database.dispose()
    return 0


def _do(arguments: argparse.Namespace, users: Users) -> None:
    match arguments.action:
        case "add":
            users.add(arguments.name, _hashed(arguments), arguments.role)
            data, name = quote(str(arguments.data)), quote(arguments.name)
            say(f"added; to make a token: rtfilter users --data {data} token {name}")
        case "password":
            users.set_password(arguments.name, _hashed(arguments))
        case "roles":
            users.set_roles(arguments.name, arguments.role)
        case "remove":
            users.remove(arguments.name)
        case "token":
            _make_token(arguments, users)
        case "revoke":
            users.revoke(arguments.id)
        case "list":
            _list(users, arguments.data)


def _make_token(arguments: argparse.Namespace, users: Users) -> None:
    from rtfilter.service.access import tokens

    token = tokens.new()
    expires = None if arguments.days is None else time.time() + arguments.days * DAY
    id = users.add_token(arguments.name, tokens.digest(token), arguments.label, expires)
    show(token)
    say(f"this is token {id}; it is not shown again")


def _hashed(arguments: argparse.Namespace) -> str:
    from rtfilter.service.access.passwords import Passwords

    password = _password(arguments)
    try:
        return Passwords().hash(password)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _password(arguments: argparse.Namespace) -> str:
    try:
        if arguments.password_file is not None:
            with open(arguments.password_file, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        if not sys.stdin.isatty():
            return sys.stdin.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise CommandError("the password is not UTF-8") from None
    try:
        password = getpass(f"password of {arguments.name}: ")
        again = getpass("once more: ")
    except EOFError:
        raise CommandError("no password was given") from None
    if password != again:
        raise CommandError("the two passwords differ; nothing was changed")
    return password


def _list(users: Users, folder: Path) -> None:
    now, tokens = time.time(), users.tokens()
    accounts = users.read().accounts
    if not accounts:
        data = quote(str(folder))
        say(f"there are no users; to add one: rtfilter users --data {data} add NAME --role admin")
    for name, account in sorted(accounts.items()):
        show(f"{name}  {', '.join(sorted(account.roles))}  since {_day(account.made)}")
        for token in tokens:
            if token.user != name:
                continue
            if token.revoked is not None:
                state = f"revoked {_day(token.revoked)}"
            elif not token.good(now):
                state = f"expired {_day(token.expires or 0)}"
            else:
                state = "good" if token.expires is None else f"good until {_day(token.expires)}"
            show(f"  token {token.id}  {token.label}  made {_day(token.made)}, {state}")


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))
