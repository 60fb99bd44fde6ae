"""The settings of the server: flags of ``rtfilter serve``, variables ``RTFILTER_...``, or a file."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from rtfilter.service.backlog import BacklogLimits, Policy
from rtfilter.service.doors.admission import is_loopback
from rtfilter.service.upkeep import Keeping
from rtfilter.store.database import postgresql


def _named_place(given: object) -> object:
    if given == "":
        raise ValueError("an empty text is no path; write . for this folder")
    return given


def _addresses(given: str) -> str:
    for one in filter(None, given.split(",")):
        try:
            ip_network(one.strip())
        except ValueError:
            wrong = f"{one.strip()!r} is no address and no network; write it as 127.0.0.1,10.0.0.0/8"
            raise ValueError(wrong) from None
    return given


Place = Annotated[Path, BeforeValidator(_named_place)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LOG: Final = "log.sqlite"
"""The file of SQLite's database in the folder."""
_BOUNDS, _KEEPING = BacklogLimits(), Keeping()


class SettingsError(ValueError):
    """The settings of the server are wrong."""


class Settings(BaseSettings):
    """The settings of the server.

    Attributes
    ----------
    data : Path
        Folder of all data.
    database : str or None
        Of PostgreSQL, ``postgresql+psycopg://user:password@host/name``; None for SQLite in the folder.
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
    log_level : str
        The lowest level that is logged.
    """

    model_config = SettingsConfigDict(env_prefix="RTFILTER_", extra="forbid", env_ignore_empty=True)

    data: Place
    database: SecretStr | None = None
    host: str = Field(default="127.0.0.1", min_length=1)
    port: Port = 8080
    tcp_port: Port | None = None
    certificate: Place | None = None
    certificate_key: Place | None = None
    trusted_proxies: Annotated[str, AfterValidator(_addresses)] | None = None
    durability: Literal["process", "power"] = "process"
    body: Count = 16 * 2**20
    frame: Annotated[int, Field(ge=4096, le=2**30)] = 2**20
    nesting: Annotated[int, Field(ge=1, le=500)] = 64
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
    webhook_tries: Annotated[int, Field(ge=1, le=1000)] = 12
    drain: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("database")
    @classmethod
    def _postgresql(cls, given: SecretStr | None) -> SecretStr | None:
        return None if given is None else SecretStr(postgresql(given.get_secret_value()))

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if (self.certificate is None) != (self.certificate_key is None):
            given, missing = "certificate", "certificate_key"
            if self.certificate is None:
                given, missing = missing, given
            raise ValueError(f"{_named(missing)}: is needed with {_flag(given)}")
        return self

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
        if self.database is not None:
            return self.database.get_secret_value()
        return f"sqlite:///{self.file}"

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
    flags, kept = _given(flags), _read(from_file)
    try:
        return Settings(**{name: value for name, value in kept.items() if not _variable(name)} | flags)
    except ValidationError as error:
        found = ((one["loc"], one["msg"].removeprefix("Value error, ")) for one in error.errors())
        origins = {name: f"{from_file}: {name}" for name in kept if _origin(name, flags, kept) == "file"}
        raise SettingsError("; ".join(_said(*one, origins) for one in found)) from None


def show(from_file: Path | None = None, **flags: Any) -> str:
    """Return all settings as TOML, which can be such a file; comments say where each comes from.

    Secrets are left out. Parameters and errors are those of `settings`.
    """
    flags, kept = _given(flags), _read(from_file)
    missing = "data" not in flags.keys() | kept.keys() and not _variable("data")
    found = settings(from_file, **flags, **({"data": Path()} if missing else {}))
    lines = []
    for name in Settings.model_fields:
        value, origin = getattr(found, name), _origin(name, flags, kept)
        if missing and name == "data":
            lines.append("# data is needed")
        elif value is None:
            lines.append(f"# {name} is not set")
        elif isinstance(value, SecretStr):
            lines.append(f"# {name} is secret, and not shown  # {origin}")
        else:
            lines.append(f"{name} = {_toml(value)}  # {origin}")
    return "\n".join(lines)


def _given(flags: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _variable(name: str) -> bool:
    """Return whether the environment has a setting."""
    return bool(os.environ.get(f"RTFILTER_{name.upper()}"))


def _origin(name: str, flags: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    if name in flags:
        return "flag"
    if _variable(name):
        return "environment"
    return "file" if name in kept else "default"


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
    for name in found.keys() - Settings.model_fields.keys():
        near = difflib.get_close_matches(name.replace("-", "_").lower(), Settings.model_fields, 1)
        yield f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


def _toml(value: Path | str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _said(place: tuple[int | str, ...], message: str, origins: Mapping[str, str]) -> str:
    if not place:
        return message
    name = str(place[0])
    if name == "data" and message == "Field required":
        return "a folder for the data is needed: --data DIR"
    return f"{origins.get(name) or _named(name)}: {message}"


def _named(name: str) -> str:
    """Return the names of a setting: its flag and its variable."""
    return f"{_flag(name)}, or RTFILTER_{name.upper()}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
