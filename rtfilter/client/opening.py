"""The three ways to a client."""

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
        In their place.
    window : int
        Deliveries that may wait in memory, at least 1: the server sends no more before some are taken.
    acknowledge : {"automatic", "manual"}
        Automatic: a delivery is acknowledged when the loop comes back for the next one. Manual: by its
        ``acknowledge()``.
    patience : float
        Seconds for which a client that has lost its connection tries to come back. The first time it tries
        once.
    ssl : ssl.SSLContext, optional
        For ``wss`` and ``https``; by default what this machine trusts, or the file that the variable
        ``SSL_CERT_FILE`` names.

    Raises
    ------
    ClientError
        An argument cannot be used.
    UnreachableError, RefusedError
        When it is entered: nobody answers, or the server does not let this user in.
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

    It is connected already, by a thread in the background. Parameters and errors are those of `connect`.
    """
    address = Address(url, user, password, token, ssl)
    return PlainClient(address, window=window, acknowledge=acknowledge, patience=patience)


def get_client(login: str, passcode: str, url: str = URL) -> ClientApi:
    """Return a client whose operations return futures, and which hands events to a handler.

    It is connected already; errors are those of `connect`.

    Parameters
    ----------
    login, passcode : str
        User and password.
    url : str
        As of `connect`.
    """
    return ClientApi(Address(url, login, passcode))
