"""The three functions that open a client."""

from __future__ import annotations

import ssl as tls
from typing import Final

from rtfilter.client.address import Address
from rtfilter.client.client import PATIENCE, WINDOW, Acknowledge, Client
from rtfilter.client.futures import ClientApi
from rtfilter.client.plain import PlainClient

URL: Final = "ws://127.0.0.1:8080"
"""The default address of `rtfilter serve`."""


def connect(
    url: str = URL,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    window: int = WINDOW,
    acknowledge: Acknowledge = "automatic",
    patience: float = PATIENCE,
    ssl: tls.SSLContext | None = None,
) -> Client:
    """Return a client for programs with asyncio: ``async with connect(...) as client``.

    Parameters
    ----------
    url : str
        ``ws://host:port``, or ``wss://`` with TLS; ``http`` and ``https`` mean the same.
    user, password : str, optional
    token : str, optional
        A token, instead of user and password.
    window : int
        Deliveries that may wait in memory, at least 1: the server sends no more until the program takes some.
    acknowledge : {"automatic", "manual"}
        Automatic: a delivery is acknowledged when the loop asks for the next one. Manual: by its
        ``acknowledge()``.
    patience : float
        Seconds for which a client tries to reconnect after the loss of a connection. The first connection has
        only one attempt.
    ssl : ssl.SSLContext, optional
        For ``wss`` and ``https``; by default the certificates that this machine trusts, or the file in the
        variable ``SSL_CERT_FILE``.

    Raises
    ------
    ClientError
        An argument cannot be used.
    UnreachableError, RefusedError
        On entering: the server does not answer, or refuses this user.
    """
    address = Address(url, user, password, token, ssl)
    return Client(address, window=window, acknowledge=acknowledge, patience=patience)


def connect_plain(
    url: str = URL,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    window: int = WINDOW,
    acknowledge: Acknowledge = "automatic",
    patience: float = PATIENCE,
    ssl: tls.SSLContext | None = None,
) -> PlainClient:
    """Return a client for programs without asyncio: ``with connect_plain(...) as client``.

    A background thread has connected it already. Parameters and errors are those of `connect`.
    """
    address = Address(url, user, password, token, ssl)
    return PlainClient(address, window=window, acknowledge=acknowledge, patience=patience)


def get_client(login: str, passcode: str, url: str = URL) -> ClientApi:
    """Return a client whose operations return futures, and which passes events to a handler.

    It is already connected; errors are those of `connect`.

    Parameters
    ----------
    login, passcode : str
        User and password.
    url : str
        As for `connect`.
    """
    return ClientApi(Address(url, login, passcode))
