"""The settings of a broker or a rendezvous point, from flags of ``rtfilter broker`` or from a file."""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from rtfilter import sockets
from rtfilter.definition import Definition
from rtfilter.errors import RTFilterError
from rtfilter.overlay import membership
from rtfilter.overlay.membership import Contact
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
_CLIENT_LIMITS, _LIMITS, _TIMES = ClientLimits(), LinkLimits(), membership.MembershipSettings()

Port = Annotated[int, Meta(ge=0, le=65_535)]
Count = Annotated[int, Meta(ge=1, le=10**12)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class BrokerSettingsError(RTFilterError, ValueError):
    """The settings of a process are invalid."""


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that brokers and rendezvous points have in common.

    Attributes
    ----------
    key : Path
        File with the key of the network.
    data : Path
        Folder for the stored state, if it is in SQLite; and for the lock of the process.
    host, port : str, int
        Address to listen on; port 0 for any free one.
    heartbeat, missed : float, int
        See `rtfilter.overlay.membership.MembershipSettings`; the same in the whole network.
    message, waiting : int
        See `LinkLimits`; `message` is the same at all brokers of a network.
    metrics_port : int or None
        Port of the metrics for Prometheus; None for no metrics.
    log_level : str
        Lowest level that is logged.
    """

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
        """Address of the database."""
        given = os.environ.get(DATABASE)
        if not given:
            return f"sqlite:///{self.data / 'broker.sqlite'}"
        driver, _, rest = given.partition("://")
        return f"postgresql+psycopg://{rest}" if driver in ("postgres", "postgresql") else given

    @property
    def shared(self) -> bool:
        """True if others may use the same database."""
        return bool(os.environ.get(DATABASE))

    @property
    def limits(self) -> LinkLimits:
        """Limits of connections."""
        return LinkLimits(self.message, self.waiting, 3 * self.heartbeat * self.missed)

    @property
    def times(self) -> membership.MembershipSettings:
        """Times and limits of membership."""
        return _TIMES._replace(heartbeat=self.heartbeat, missed=self.missed)


class PointSettings(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a rendezvous point."""


class BrokerSettings(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a broker.

    Attributes
    ----------
    name : str
        Name of the broker, unique in the network.
    cluster : str
        Name of the brokers that reach each other by multicast, or know each other as `peers`; by default
        `name`.
    schema : str
        The event types: JSON or a file with it, an object with a schema by name, the same at all brokers; or
        with an object of ``schema`` and ``matcher``, where each broker may have another matcher.
    rendezvous : str
        ``host:port`` of the rendezvous point.
    address : str
        ``host:port`` for other brokers; by default where it listens.
    strategy : str
        The first strategy, the same at all brokers.
    rendezvous_for : tuple of str
        Rendezvous clusters of event types for the strategy `rendezvous`, ``type=cluster``; events of other
        types meet at the root. The same at all brokers.
    choose_every : float or None
        Seconds between measurements, after each of which the root changes to the cheapest strategy; by
        default there are none. The same at all brokers.
    slack : float or None
        Largest empty share of a box that is sent to neighbours instead of many near ones; by default they get
        each box that no other one covers.
    group : str
        ``address:port`` of the cluster's multicast; empty for none.
    interface : str
        The address of this machine on the network of the group.
    peers : tuple of str
        Other brokers of the cluster, ``name=host:port``, if there is no multicast.
    children : int
        Most clusters below the own one.
    grace : float
        Seconds to wait for lost subscriptions before they are removed: longer than the tree needs to heal.
    again, linger : float
        See `ClientLimits`.
    """

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
        for type in self.assigned:
            if type not in types:
                known = ", ".join(types)
                raise BrokerSettingsError(
                    f"--rendezvous-for: no event type {type!r:.80}; --schema has {known}"
                )

    @property
    def times(self) -> membership.MembershipSettings:
        """Times and limits of membership."""
        return _TIMES._replace(heartbeat=self.heartbeat, missed=self.missed, children=self.children)

    @property
    def client_limits(self) -> ClientLimits:
        """Limits for clients."""
        return _CLIENT_LIMITS._replace(
            again=self.again,
            longest=LONGEST * self.again,
            linger=self.linger,
            event=self.message - SPARE,
        )


SettingsKind = TypeVar("SettingsKind", bound=Common)


def settings(kind: type[SettingsKind], file: Path | None = None, **flags: Any) -> SettingsKind:
    """Return the settings from flags that are not None, and from a file.

    Parameters
    ----------
    kind : type
        `BrokerSettings` or `PointSettings`.
    file : Path, optional
        TOML file with the names of the settings.
    **flags

    Raises
    ------
    BrokerSettingsError
        A setting is wrong; the message names it.
    OSError
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
        what, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`").partition("[")[0]
        if not name:
            raise BrokerSettingsError(what) from None
        origin = f"--{name.replace('_', '-')}" if name in told else f"{file}: {name}"
        raise BrokerSettingsError(f"{origin}: {what}") from None


def event_types(given: str) -> dict[str, Definition]:
    """Return the event types in JSON, or in a file with it. Raises `BrokerSettingsError` and `OSError`.

    Each is a schema, or an object with a schema and a matcher.
    """
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
