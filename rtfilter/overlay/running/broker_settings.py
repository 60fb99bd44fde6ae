"""The settings of a broker or a rendezvous point, from flags of ``rtfilter broker`` or from a file."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from rtfilter.basics import sockets
from rtfilter.basics.errors import RTFilterError
from rtfilter.basics.text import placed
from rtfilter.definition import Definition
from rtfilter.overlay.membership import Contact, MembershipSettings
from rtfilter.overlay.running.broker_frames import SPARE
from rtfilter.overlay.running.links import LinkLimits
from rtfilter.overlay.running.publications import ClientLimits
from rtfilter.overlay.strategies import strategy_of

POINT: Final = "rendezvous"
"""The name of the rendezvous point on connections; no broker may have it."""
DATABASE: Final = "RTFILTER_DATABASE"
"""The variable with the address of a database, which may include a password."""
LONGEST: Final = 5.0
"""Longest time between two repetitions of a publication, as a multiple of the first: a broker that has just
started acknowledges nothing for its grace, and its early repetitions should not delay later ones much."""
_CLIENT_LIMITS, _LIMITS, _TIMES = ClientLimits(), LinkLimits(), MembershipSettings()

Port = Annotated[int, Meta(ge=0, le=65_535)]
Count = Annotated[int, Meta(ge=1, le=10**12)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class BrokerSettingsError(RTFilterError, ValueError):
    """The settings of a process are invalid."""


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that brokers and rendezvous points have in common: the flags of ``rtfilter broker``."""

    key: Path
    data: Path
    host: Name = "127.0.0.1"
    port: Port = 0
    heartbeat: Seconds = _TIMES.heartbeat
    missed: Count = _TIMES.missed
    message: Annotated[int, Meta(ge=4 * SPARE, le=2**31)] = _LIMITS.message
    waiting: Count = _LIMITS.waiting
    metrics_port: Port | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def url(self) -> str:
        """The address of the database."""
        given = os.environ.get(DATABASE) or f"sqlite:///{self.data / 'broker.sqlite'}"
        return re.sub("^postgres(ql)?://", "postgresql+psycopg://", given)

    @property
    def shared(self) -> bool:
        """True if others may use the same database."""
        return bool(os.environ.get(DATABASE))

    @property
    def limits(self) -> LinkLimits:
        """Limits of connections."""
        return LinkLimits(self.message, self.waiting, 3 * self.heartbeat * self.missed)

    @property
    def times(self) -> MembershipSettings:
        """Times and limits of membership."""
        return MembershipSettings(heartbeat=self.heartbeat, missed=self.missed)


class PointSettings(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a rendezvous point."""


class BrokerSettings(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a broker: the flags of ``rtfilter broker run``."""

    name: Name
    schema: Annotated[str, Meta(min_length=1)]
    rendezvous: Name
    cluster: str = ""
    address: str = ""
    strategy: Name = "hybrid"
    rendezvous_for: tuple[str, ...] = ()
    choose_every: Seconds | None = None
    slack: Share | None = None
    group: str = ""
    interface: str = "0.0.0.0"
    peers: tuple[Name, ...] = ()
    children: Count = _TIMES.children
    grace: Seconds = 15.0
    again: Seconds = _CLIENT_LIMITS.again
    linger: Seconds = _CLIENT_LIMITS.linger

    def __post_init__(self) -> None:
        if self.name == POINT:
            raise ValueError(f"a broker cannot be called {POINT}")
        strategy_of(self.strategy)
        for name in ("rendezvous", "address", "group", "interface"):
            if given := getattr(self, name):
                _require(name, given)
        self.known, self.assigned  # noqa: B018  # they raise for wrong values
        if self.host in ("0.0.0.0", "::") and not self.address:
            raise ValueError(f"listening on {self.host} needs --address HOST:PORT, for other brokers")

    @property
    def home(self) -> str:
        """The name of the cluster."""
        return self.cluster or self.name

    @property
    def known(self) -> dict[str, Contact]:
        """The peers by name."""
        found = {}
        for peer in self.peers:
            name, told, address = peer.partition("=")
            if not name or not told:
                raise BrokerSettingsError(f"--peer: {peer!r:.80} is not NAME=HOST:PORT")
            host_and_port(address)
            found[name] = Contact(name, self.home, address)
        return found

    @property
    def assigned(self) -> dict[str, str]:
        """The rendezvous clusters by event type."""
        found: dict[str, str] = {}
        for one in self.rendezvous_for:
            type, _, cluster = one.partition("=")
            if not type or not cluster:
                raise BrokerSettingsError(f"--rendezvous-for: {one!r:.80} is not TYPE=CLUSTER")
            if found.setdefault(type, cluster) != cluster:
                raise BrokerSettingsError(f"--rendezvous-for: {type!r:.80} has two clusters; give one")
        return found

    def require(self, types: Mapping[str, Definition]) -> None:
        """Raise `BrokerSettingsError` for a rendezvous cluster of an unknown event type."""
        for type in self.assigned.keys() - types.keys():
            known = ", ".join(types)
            raise BrokerSettingsError(f"--rendezvous-for: no event type {type!r:.80}; --schema has {known}")

    @property
    def times(self) -> MembershipSettings:
        """Times and limits of membership."""
        return super().times._replace(children=self.children)

    @property
    def client_limits(self) -> ClientLimits:
        """Limits for clients."""
        longest, event = LONGEST * self.again, self.message - SPARE
        return ClientLimits(again=self.again, longest=longest, linger=self.linger, event=event)


SettingsKind = TypeVar("SettingsKind", bound=Common)


def settings(kind: type[SettingsKind], file: Path | None = None, **flags: Any) -> SettingsKind:
    """Return the settings from flags that are not None, and from a TOML file.

    Raises `OSError`, and `BrokerSettingsError` with the name of the wrong setting.
    """
    told = {name: value for name, value in flags.items() if value is not None}
    kept = {} if file is None else _read(file)
    for name in kept.keys() - set(kind.__struct_fields__):
        near = difflib.get_close_matches(name, kind.__struct_fields__, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BrokerSettingsError(f"{file}: there is no setting {name!r}{hint}")
    for name in kind.__struct_fields__:
        if name not in told and name not in kept and name in ("name", "key", "data", "schema", "rendezvous"):
            raise BrokerSettingsError(f"--{name} is needed, or {name} = ... in the file of --settings")
    try:
        return msgspec.convert(kept | told, kind, dec_hook=_path)
    except msgspec.ValidationError as error:
        place, what = placed(str(error))
        name = place.partition("[")[0]
        if not name:
            raise BrokerSettingsError(what) from None
        origin = f"--{name.replace('_', '-')}" if name in told else f"{file}: {name}"
        raise BrokerSettingsError(f"{origin}: {what}") from None


def event_types(given: str) -> dict[str, Definition]:
    """Return the event types in JSON, or in a file with it. Raises `BrokerSettingsError` and `OSError`."""
    is_json = given.lstrip().startswith(("{", "["))
    file = "--schema" if is_json else given
    try:
        found = json.loads(given if is_json else Path(given).read_text())
    except ValueError as error:
        raise BrokerSettingsError(f"{file} is not JSON: {error}") from None
    if not isinstance(found, Mapping) or not found:
        raise BrokerSettingsError(
            f'{file}: an object of event types, such as {{"trades": {{"price": "float"}}}}'
        )
    types = {}
    for name, given_type in found.items():
        if isinstance(given_type, str):
            needed = 'each event type has a schema, such as {"trades": {"price": "float"}}'
            raise BrokerSettingsError(f"{file}: {needed}, but {name!r} has {json.dumps(given_type):.80}")
        try:
            types[name] = one = Definition.from_json(given_type)
            if one != Definition(one.schema, one.matcher):
                raise ValueError(
                    "a broker matches each event by itself, and limits no subscriptions: give a schema and a "
                    "matcher, and leave out controller, order and max_unbounded"
                )
            one.require_whole("a broker")
        except ValueError as error:
            raise BrokerSettingsError(f"{file}: event type {name!r}: {error}") from None
    return types


def host_and_port(text: str) -> tuple[str, int]:
    """Return host and port of an address. Raises `BrokerSettingsError`."""
    try:
        return sockets.host_and_port(text)
    except ValueError as error:
        raise BrokerSettingsError(str(error)) from None


def _require(name: str, given: str) -> None:
    """Raise `ValueError` if the value of a flag is no address."""
    try:
        host = given if name == "interface" else host_and_port(given)[0]
        if name == "group" and not ipaddress.IPv4Address(host).is_multicast:
            raise ValueError(f"{host} is no multicast address; they are from 224.0.0.0 to 239.255.255.255")
        if name == "interface":
            ipaddress.IPv4Address(host)
    except ValueError as error:
        raise ValueError(f"--{name}: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BrokerSettingsError(f"{file} is not TOML: {error}") from None


def _path(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError("a path is needed; write . for this folder")
