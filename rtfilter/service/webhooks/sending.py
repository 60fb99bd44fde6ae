"""A request to a webhook: its target, its time limit, and its outcome."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpcore

from rtfilter.service.webhooks.targets import NameResolver, Resolve, TargetError, addresses

TIMEOUT: Final = 10.0
"""Seconds for a request, from resolving the name to the last byte of the answer."""
CONNECT: Final = 4.0
"""Seconds for one of several addresses."""
MOST_ANSWER: Final = 4096
"""Bytes of an answer that are read."""
AT_ONCE: Final = 50
"""Most simultaneous requests of a lane."""
_log = logging.getLogger(__name__)


class WebhookAnswer(NamedTuple):
    """The outcome of a request.

    Attributes
    ----------
    status : int or None
        None where there was no whole answer.
    error : str or None
        The error; nothing of the answer's body is in it.
    retry_after : float or None
        Seconds that the target asks to wait.
    """

    status: int | None
    error: str | None = None
    retry_after: float | None = None

    @property
    def gone(self) -> bool:
        """True if the target refuses all further deliveries."""
        return self.status == 410


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that is closed where the start of TLS is cut short; httpcore would leave it open."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self.read, self.write, self.aclose = inner.read, inner.write, inner.aclose  # type: ignore[method-assign]
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkStream`."""
        try:
            return await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._inner.aclose()
            raise


class _Network(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were checked, and never resolves a name a second time."""

    def __init__(self, resolve: Resolve, private: bool) -> None:
        self._resolve, self._private = resolve, private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """See `httpcore.AsyncNetworkBackend`."""
        found = await addresses(host, port, self._resolve, self._private)
        error: Exception = httpcore.ConnectError()
        for one in found:
            try:
                made = await self._inner.connect_tcp(one, port, CONNECT, local_address, socket_options)
                return _Stream(made)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failed:
                error = failed
        raise error


class Lane:
    """Requests that share threads and connections with each other, and with no others.

    Parameters
    ----------
    private, resolve, timeout
        See `Sender`.
    trusted : ssl.SSLContext
        The trusted certificates.

    Attributes
    ----------
    places : asyncio.Semaphore
        Acquired while a request is sent.
    resolve : callable
        Names to addresses.
    """

    def __init__(
        self, private: bool, resolve: Resolve | None, timeout: float, trusted: ssl.SSLContext
    ) -> None:
        self._names, self._timeout = NameResolver(), timeout
        self.places, self.resolve = asyncio.Semaphore(AT_ONCE), resolve or self._names
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trusted,
            max_connections=AT_ONCE,
            max_keepalive_connections=AT_ONCE,
            keepalive_expiry=15.0,
            network_backend=_Network(self.resolve, private),
        )

    async def close(self) -> None:
        """End all connections."""
        self._names.close()
        await self._pool.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Send a body of JSON; return the outcome, also if the target fails."""
        given = {"Host": urlsplit(url).netloc, "Content-Type": "application/json", "User-Agent": "rtfilter"}
        try:
            async with asyncio.timeout(self._timeout):
                return await self._post(url, {**given, **headers}, body)
        except TimeoutError:
            return WebhookAnswer(None, f"it did not answer within {self._timeout:g} seconds")
        except TargetError as error:
            return WebhookAnswer(None, str(error))
        except httpcore.ConnectError as error:
            if isinstance(error.__context__, ssl.SSLError) or "SSL" in str(error):
                return WebhookAnswer(None, "its TLS certificate is not good, or it does not speak TLS")
            return WebhookAnswer(None, "it cannot be connected to")
        except httpcore.ConnectTimeout:
            return WebhookAnswer(None, "it cannot be connected to in time")
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError):
            return WebhookAnswer(None, "it closed the connection, or its answer is no HTTP")
        except Exception as error:
            _log.error("a webhook could not be sent to: %s", type(error).__name__)
            return WebhookAnswer(None, "the request failed")

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        async with self._pool.stream("POST", url, headers=list(headers.items()), content=body) as answer:
            size = 0
            async for part in answer.aiter_stream():
                size += len(part)
                if size > MOST_ANSWER:
                    break  # the connection is closed then
            status = answer.status
            if 200 <= status < 300:
                return WebhookAnswer(status)
            more = ": redirects are not followed" if 300 <= status < 400 else ""
            return WebhookAnswer(status, f"it answered {status}{more}", _retry_after(answer.headers))


class Sender:
    """Sends to webhooks in two lanes, so that slow or failing ones do not delay quick ones.

    For one event loop.

    Parameters
    ----------
    private : bool
        True if addresses that are not public are allowed.
    resolve : callable, optional
        Names to addresses.
    timeout : float
        Seconds of a request.
    """

    def __init__(self, private: bool, resolve: Resolve | None = None, timeout: float = TIMEOUT) -> None:
        self.private = private
        trusted = ssl.create_default_context()
        self._lanes = {quick: Lane(private, resolve, timeout, trusted) for quick in (False, True)}

    def lane(self, quick: bool) -> Lane:
        """Return the lane of webhooks that answered quickly the last time, or that of all others."""
        return self._lanes[quick]

    async def close(self) -> None:
        """End all connections."""
        for lane in self._lanes.values():
            await lane.close()


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    for name, value in headers:
        if name.lower() == b"retry-after":
            text = value.decode("latin-1").strip()
            try:
                if text.isdecimal():
                    return float(text[:9])
                return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
            except (ValueError, OverflowError):
                return None
    return None
