"""The arguments of commands that talk to a server: its address, and the user."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rtfilter.cli.terminal import CommandError

if TYPE_CHECKING:
    from rtfilter.client import PlainClient
    from rtfilter.events.schema import Schema

URL = "RTFILTER_URL"
TOKEN = "RTFILTER_TOKEN"
PASSWORD = "RTFILTER_PASSWORD"
WHO = f"""\
Who you are: --token-file, or the environment variable {TOKEN}; or --user, with {PASSWORD}
where the server has users. Secrets are no arguments, because others on this machine can see these.
"""
"""Part of the descriptions of these commands."""


def add_server(parser: argparse.ArgumentParser) -> None:
    """Declare --url, --user and --token-file."""
    parser.add_argument(
        "--url",
        default=os.environ.get(URL, "ws://127.0.0.1:8080"),
        help=f"of the server, with TLS wss://host:port (default: {URL}, or ws://127.0.0.1:8080)",
    )
    parser.add_argument("--user", metavar="NAME", help="your name")
    parser.add_argument("--token-file", metavar="FILE", help="holds your token")


def add_filter(parser: argparse.ArgumentParser) -> None:
    """Declare --filter."""
    parser.add_argument(
        "--filter", default="default", metavar="NAME", help="on the server (default: default)"
    )


@contextmanager
def connected(
    arguments: argparse.Namespace, acknowledge: Literal["automatic", "manual"] = "automatic"
) -> Iterator[PlainClient]:
    """Connect as the arguments say, and disconnect at the end.

    Raises
    ------
    CommandError
        The server cannot be reached, or refuses something.
    """
    from rtfilter.client import ClientError, RefusedError, connect_plain

    token = _token(arguments)
    hints = logging.getLogger("rtfilter.client.client")
    hints.disabled = True  # the commands themselves report odd events, with their place in the file
    try:
        with connect_plain(
            arguments.url,
            user=arguments.user if token is None else None,
            password=os.environ.get(PASSWORD) if token is None else None,
            token=token,
            acknowledge=acknowledge,
        ) as client:
            yield client
    except RefusedError as error:
        raise CommandError(_explained(error.kind, str(error))) from None
    except ClientError as error:
        raise CommandError(str(error)) from None
    finally:
        hints.disabled = False


def served_schema(arguments: argparse.Namespace) -> Schema:
    """Return the schema of the filter that the arguments name, from the server.

    Raises
    ------
    CommandError
        The server cannot be reached, or refuses the request.
    """
    import json
    from base64 import b64encode
    from urllib.error import HTTPError
    from urllib.parse import quote, urlsplit, urlunsplit
    from urllib.request import Request, urlopen

    from rtfilter.client import ClientError
    from rtfilter.client.link import Address
    from rtfilter.events.schema import Schema

    token = _token(arguments)
    user, password = (arguments.user, os.environ.get(PASSWORD)) if token is None else (None, None)
    try:
        address = Address(arguments.url, user, password, token)
    except ClientError as error:
        raise CommandError(str(error)) from None
    parts = urlsplit(address.url)
    path = f"{parts.path.removesuffix('/session')}/filters/{quote(arguments.filter, safe='')}"
    url = urlunsplit(("https" if address.secure else "http", parts.netloc, path, parts.query, ""))
    basic = b64encode(f"{user}:{password or ''}".encode()).decode()
    who = f"Basic {basic}" if token is None else f"Bearer {token}"
    try:
        with urlopen(Request(url, headers={"Authorization": who}), timeout=30, context=address.ssl) as answer:
            return Schema.from_json(json.load(answer)["schema"])
    except HTTPError as error:
        with error:
            detail = _detail(error.read())
        kind = "unauthenticated" if error.code == 401 else ""
        raise CommandError(_explained(kind, detail or f"{url} answers {error.code}; give --schema")) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CommandError(f"the schema cannot be read from {url}: {error}; give --schema") from None


def _detail(body: bytes) -> str | None:
    """Return the detail of a problem document; None if there is none."""
    import json

    try:
        detail = json.loads(body)["detail"]
    except (ValueError, LookupError, TypeError):
        return None
    return detail if isinstance(detail, str) else None


def _token(arguments: argparse.Namespace) -> str | None:
    if arguments.token_file is not None:
        if arguments.user is not None:
            raise CommandError("give either --user or --token-file: a token belongs to a user")
        found = Path(arguments.token_file).read_text()
        if not found.strip():
            raise CommandError(f"{arguments.token_file} holds no token")
        return found.strip()
    if arguments.user is not None:
        return None
    if TOKEN in os.environ:
        return os.environ[TOKEN]
    raise CommandError(f"say who you are: --user NAME, --token-file FILE, or the variable {TOKEN}")


def _explained(kind: str, message: str) -> str:
    if kind == "unauthenticated":
        return f"{message}; see --user, --token-file, {TOKEN} and {PASSWORD}"
    return message
