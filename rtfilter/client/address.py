"""The address of a server, and the user that connects."""

from __future__ import annotations

import ssl as tls
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from rtfilter.client.client_errors import ClientError
from rtfilter.text import shown

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


@dataclass(frozen=True)
class Address:
    """A server and one of its users.

    Parameters
    ----------
    url : str
        ``ws://host:port`` or ``wss://``; ``http`` and ``https`` mean the same. Without a path, it is the
        server's ``/session``.
    user, password : str, optional
    token : str, optional
        A token, instead of user and password.
    ssl : ssl.SSLContext, optional
        For ``wss``; by default the certificates that this machine trusts, or the file in ``SSL_CERT_FILE``.

    Raises
    ------
    ClientError
        The URL is wrong, there is no user or token, or `ssl` is given for ``ws``.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ssl: tls.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in _SCHEMES and parts.hostname and (parts.port is None or parts.port)
            known = known and self.url.isprintable() and bool((parts.hostname or "").encode("idna"))
        except ValueError:
            known = False
        if not known:
            raise ClientError(f"{shown(self.url)} is not the URL of a server, such as ws://127.0.0.1:8080")
        if parts.username is not None or parts.password is not None:
            raise ClientError("give user and password beside the URL, not in it")
        path = parts.path if parts.path not in ("", "/") else "/session"
        full = urlunsplit((_SCHEMES[parts.scheme], parts.netloc, path, parts.query, ""))
        object.__setattr__(self, "url", full)
        if self.secure and self.ssl is None:
            object.__setattr__(self, "ssl", tls.create_default_context())
        elif self.ssl is not None and not self.secure:
            raise ClientError(f"ssl is for wss:// and https://; the URL is {self.url}")
        if (self.user is None) == (self.token is None):
            raise ClientError("say who you are: either user, with password, or token")
        try:
            "".join(self.credentials.values()).encode()
        except UnicodeEncodeError:
            raise ClientError("user, password or token is not UTF-8") from None

    @property
    def secure(self) -> bool:
        """True if the connection uses TLS."""
        return self.url.startswith("wss:")

    @property
    def credentials(self) -> dict[str, str]:
        """The body of CONNECT."""
        if self.token is not None:
            return {"token": self.token}
        return {"user": self.user or "", "password": self.password or ""}
