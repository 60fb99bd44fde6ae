"""What the server is told: by flags of ``rtfilter serve``, or else by variables ``RTFILTER_...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rtfilter.service.backlog import Bounds, Policy
from rtfilter.service.databases import postgresql
from rtfilter.service.doors.admission import is_loopback
from rtfilter.service.minding import Keeping

Port = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LOG: Final = "log.sqlite"
"""The database in the folder, where there is no other."""
_BOUNDS, _KEEPING = Bounds(), Keeping()


class SettingsError(ValueError):
    """What the server is told does not do."""


class Settings(BaseSettings):
    """What the server is told.

    Attributes
    ----------
    data : Path
        Folder with all that is kept.
    database : str or None
        Of PostgreSQL, ``postgresql+psycopg://user:password@host/name``; None for SQLite in the folder.
    host, port : str, int
        Where HTTP and WebSocket are; port 0 for any that is free.
    tcp_port : int or None
        Where sessions over TCP are, if at all.
    certificate, certificate_key : Path or None
        For TLS, as PEM.
    durability : "process" or "power"
        What the loss of which an answer survives.
    body, frame : int
        Most bytes of the body of a request, and of a message of a session.
    nesting : int
        How deep JSON may nest.
    subscriptions, connections : int
        Most of one user.
    rate : float or None
        Most events a second that one user publishes, over time.
    backlog_count, backlog_bytes, backlog_age, backlog_policy
        See `Bounds`.
    retention, redeliver : float
        Seconds; see `Keeping`.
    webhook_private : bool
        Whether webhooks may be in private networks, and without TLS.
    webhook_tries : int
        That fail in a row before a webhook is parked.
    """

    model_config = SettingsConfigDict(env_prefix="RTFILTER_", extra="forbid", env_ignore_empty=True)

    data: Path
    database: SecretStr | None = None
    host: str = Field(default="127.0.0.1", min_length=1)
    port: Port = 8080
    tcp_port: Port | None = None
    certificate: Path | None = None
    certificate_key: Path | None = None
    durability: Literal["process", "power"] = "process"
    body: Count = 16 * 2**20
    frame: Count = 2**20
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
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """Of the database."""
        if self.database is not None:
            return self.database.get_secret_value()
        return f"sqlite:///{self.file}"

    @property
    def file(self) -> Path:
        """Of the database, where it is SQLite."""
        return self.data / LOG

    @property
    def bounds(self) -> Bounds:
        """Of each user's backlog."""
        return Bounds(self.backlog_count, self.backlog_bytes, self.backlog_age, self.backlog_policy)

    @property
    def keeping(self) -> Keeping:
        """How long what is kept."""
        return Keeping(self.retention, self.redeliver)


def settings(**flags: Any) -> Settings:
    """Return the settings by flags, where these are not None, and by the environment.

    Raises
    ------
    SettingsError
        Says which one is wrong, by its name as a flag.
    """
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise SettingsError("; ".join(_said(one["loc"], one["msg"]) for one in error.errors())) from None


def _said(place: tuple[int | str, ...], message: str) -> str:
    message = message.removeprefix("Value error, ")
    if not place:
        return message
    name = str(place[0])
    if name == "data" and message == "Field required":
        return "a folder for the data is needed: --data DIR"
    return f"{_named(name)}: {message}"


def _named(name: str) -> str:
    """A setting, as people give it."""
    return f"{_flag(name)}, or RTFILTER_{name.upper()}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
