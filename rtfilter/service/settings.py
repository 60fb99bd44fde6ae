"""The settings of the server: flags of ``rtfilter serve``, variables ``RTFILTER_...``, or a file."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from rtfilter.service.backlog import BacklogLimits, Policy
from rtfilter.service.doors.admission import is_loopback
from rtfilter.service.upkeep import Keeping
from rtfilter.store.database import postgresql

Port = Annotated[int, Meta(ge=0, le=65_535)]
Count = Annotated[int, Meta(ge=1, le=10**12)]
Seconds = Annotated[float, Meta(gt=0, le=1e300)]  # so neither NaN nor infinite
Urls = Annotated[str, Meta(pattern=r"^https?://[^,\s]+(,\s*https?://[^,\s]+)*$")]
SiteName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
LOG: Final = "log.sqlite"
"""The file of SQLite's database in the folder."""
_BOUNDS, _KEEPING = BacklogLimits(), Keeping()


class SettingsError(ValueError):
    """The settings of the server are wrong."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the server.

    Attributes
    ----------
    data : Path
        Folder of all data.
    database : str or None
        Of PostgreSQL, ``postgresql+psycopg://user:password@host/name``; None for SQLite in the folder.
    standby : bool
        True if the server follows another one that has the database, and takes over when that one ends.
    host, port : str, int
        Address of HTTP and WebSocket; port 0 for any free one.
    tcp_port : int or None
        Port of sessions over TCP; None for no such sessions.
    certificate, certificate_key : Path or None
        For TLS, as PEM.
    trusted_proxies : str or None
        Addresses and networks, separated by commas, of proxies whose header X-Forwarded-For is believed.
    durability : "process" or "power"
        The loss that answered requests survive: that of the process, or of power.
    body, frame : int
        Most bytes of the body of a request, and of a message of a session; an event has half of that.
    nesting : int
        Most levels of nested JSON.
    subscriptions, connections : int
        Most of one user.
    rate : float or None
        Most events a second that one user publishes, over time.
    backlog_count, backlog_bytes, backlog_age, backlog_policy
        See `BacklogLimits`.
    retention, redeliver : float
        Seconds; see `Keeping`.
    webhook_private : bool
        True if webhooks may be in private networks, and without TLS.
    webhook_tries : int
        Failed requests in a row after which a webhook is parked.
    drain : float
        Most seconds that an ending server takes to send accepted events.
    site, cluster : str or None
        Names of this site and of its cluster, by default the same; None for a server alone.
    address, rendezvous : str or None
        URLs at which other sites reach this one, and the site that knows the root; by default this server.
    rendezvous_for : str or None
        Clusters at which the events of filters meet, ``filter=cluster``, with commas; for `strategy`.
    strategy, heartbeat : str, float
        The same at all sites; see `rtfilter.service.sites.site.SiteSettings`.
    slack : float or None
        Largest empty share of a box that neighbours get instead of several.
    site_password : Path or None
        File with the password of the user that this site is at others.
    log_level : str
        The lowest level that is logged.
    """

    data: Path
    database: str | None = None
    standby: bool = False
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Port = 8080
    tcp_port: Port | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    trusted_proxies: str | None = None
    durability: Literal["process", "power"] = "process"
    body: Count = 16 * 2**20
    frame: Annotated[int, Meta(ge=4096, le=2**30)] = 2**20
    nesting: Annotated[int, Meta(ge=1, le=500)] = 64
    subscriptions: Count = 1_000_000
    connections: Count = 100
    rate: Seconds | None = None
    backlog_count: Count = _BOUNDS[0]
    backlog_bytes: Count = _BOUNDS[1]
    backlog_age: Seconds = _BOUNDS[2]
    backlog_policy: Policy = _BOUNDS[3]
    retention: Seconds = _KEEPING.retention
    redeliver: Seconds = _KEEPING.redeliver
    webhook_private: bool = False
    webhook_tries: Annotated[int, Meta(ge=1, le=1000)] = 12
    drain: Annotated[float, Meta(ge=0, le=1e300)] = 10.0
    site: SiteName | None = None
    cluster: SiteName | None = None
    address: Urls | None = None
    rendezvous: Urls | None = None
    rendezvous_for: str | None = None
    strategy: Literal["hybrid", "profile_forwarding", "event_forwarding", "hierarchical", "rendezvous"] = (
        "hybrid"
    )
    heartbeat: Seconds = 1.0
    slack: Annotated[float, Meta(ge=0, lt=1)] | None = None
    site_password: Path | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __repr__(self) -> str:
        """Return a text without the password of the database."""
        return f"Settings({self.data})"

    @property
    def assigned(self) -> dict[str, str]:
        """The clusters of `rendezvous_for`, by filter."""
        pairs = filter(None, (self.rendezvous_for or "").split(","))
        return dict(one.strip().partition("=")[::2] for one in pairs)

    @property
    def password(self) -> str:
        """The password of `site_password`. Raises `OSError`."""
        return "" if self.site_password is None else self.site_password.read_text().strip()

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def proxies(self) -> list[IPv4Network | IPv6Network]:
        """The networks of `trusted_proxies`."""
        return [ip_network(one.strip()) for one in (self.trusted_proxies or "").split(",") if one]

    @property
    def url(self) -> str:
        """The address of the database."""
        return f"sqlite:///{self.file}" if self.database is None else self.database

    @property
    def file(self) -> Path:
        """The file of the database, if it is SQLite."""
        return self.data / LOG

    @property
    def bounds(self) -> BacklogLimits:
        """The bounds of each user's backlog."""
        return BacklogLimits(self.backlog_count, self.backlog_bytes, self.backlog_age, self.backlog_policy)

    @property
    def keeping(self) -> Keeping:
        """The times that the server keeps things."""
        return Keeping(self.retention, self.redeliver)


_TYPES: Final = get_type_hints(Settings, include_extras=True)


class _Given(NamedTuple):
    """A value of a setting: from a flag, the environment or a file."""

    value: Any
    origin: str


def settings(from_file: Path | None = None, **flags: Any) -> Settings:
    """Return the settings by flags, where these are not None, by the environment, and by a file.

    Parameters
    ----------
    from_file : Path, optional
        TOML, with the names of `Settings`.
    **flags

    Raises
    ------
    SettingsError
        A setting is wrong; the message has its name as a flag, or the file.
    OSError
    """
    return _settings(_given(from_file, flags), from_file)


def _settings(given: Mapping[str, _Given], file: Path | None) -> Settings:
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name, one in given.items():
        try:
            found[name] = _converted(name, one.value)
        except (msgspec.ValidationError, ValueError) as error:
            wrong.append(f"{f'{file}: {name}' if one.origin == 'file' else _named(name)}: {error}")
    if "data" not in given:
        wrong.append("a folder for the data is needed: --data DIR")
    for name, other in (("certificate", "certificate_key"), ("certificate_key", "certificate")):
        if name in given and other not in given:
            wrong.append(f"{_named(other)}: is needed with {_flag(name)}")
    if found.get("standby") and "database" not in given:
        wrong.append(f"{_named('database')}: is needed with --standby, and both servers use it")
    if "site" not in given:
        of_sites = ("cluster", "address", "rendezvous", "rendezvous_for", "site_password")
        wrong += [f"{_named('site')}: is needed with {_flag(name)}" for name in of_sites if name in given]
    elif "address" not in given and found.get("host") in ("0.0.0.0", "::"):
        wrong.append(f"{_named('address')}: is needed with --site and this --host: other sites connect to it")
    if wrong:
        raise SettingsError("; ".join(wrong))
    return Settings(**found)


def _converted(name: str, value: Any) -> Any:
    """Return a setting as its type. Raises `ValueError` and `msgspec.ValidationError`."""
    kind = _TYPES[name]
    choices = tuple(Policy) if kind is Policy else get_args(kind) if get_origin(kind) is Literal else ()
    if choices and value not in choices:
        raise ValueError(f"choose one of {', '.join(choices)}")
    found = msgspec.convert(value, kind, strict=False, dec_hook=_path)
    if name == "database":
        return postgresql(found)
    if name == "trusted_proxies":
        _require_addresses(found)
    if name == "rendezvous_for":
        _require_pairs(found)
    return found


def _path(kind: type[Any], value: object) -> Path:
    """Return a path; the hook of msgspec for types that it does not know."""
    if value == "":
        raise ValueError("an empty text is no path; write . for this folder")
    return Path(str(value))


def _require_addresses(given: str) -> None:
    for one in filter(None, given.split(",")):
        try:
            ip_network(one.strip())
        except ValueError:
            wrong = f"{one.strip()!r} is no address and no network; write it as 127.0.0.1,10.0.0.0/8"
            raise ValueError(wrong) from None


def _require_pairs(given: str) -> None:
    pairs = [one.strip().partition("=")[::2] for one in given.split(",")]
    if not all(map(all, pairs)) or len(dict(pairs)) < len(pairs):
        raise ValueError("write it as FILTER=CLUSTER, with commas between several filters")


def show(from_file: Path | None = None, **flags: Any) -> str:
    """Return all settings as TOML, which can be such a file; comments say where each comes from.

    Secrets are left out. Parameters and errors are those of `settings`.
    """
    given = _given(from_file, flags)
    found = _settings({"data": _Given(".", "default"), **given}, from_file)
    lines = []
    for name in Settings.__struct_fields__:
        value, origin = getattr(found, name), given[name].origin if name in given else "default"
        if name == "data" and name not in given:
            lines.append("# data is needed")
        elif value is None:
            lines.append(f"# {name} is not set")
        elif name == "database":
            lines.append(f"# {name} is secret, and not shown  # {origin}")
        else:
            lines.append(f"{name} = {_toml(value)}  # {origin}")
    return "\n".join(lines)


def _given(file: Path | None, flags: Mapping[str, Any]) -> dict[str, _Given]:
    found = {name: _Given(value, "file") for name, value in _read(file).items()}
    for name in Settings.__struct_fields__:
        if value := os.environ.get(f"RTFILTER_{name.upper()}"):
            found[name] = _Given(value, "environment")
        if flags.get(name) is not None:
            found[name] = _Given(flags[name], "flag")
    return found


def _read(file: Path | None) -> dict[str, Any]:
    """Return the settings of a file."""
    if file is None:
        return {}
    try:
        with file.open("rb") as opened:
            found = tomllib.load(opened)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None
    wrong = list(_unknown(found))
    if wrong:
        raise SettingsError("; ".join(f"{file}: {one}" for one in wrong))
    return found


def _unknown(found: Mapping[str, Any]) -> Iterator[str]:
    for name in found.keys() - set(Settings.__struct_fields__):
        near = difflib.get_close_matches(name.replace("-", "_").lower(), Settings.__struct_fields__, 1)
        yield f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _toml(value: Path | str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _named(name: str) -> str:
    """Return the names of a setting: its flag and its variable."""
    return f"{_flag(name)}, or RTFILTER_{name.upper()}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
