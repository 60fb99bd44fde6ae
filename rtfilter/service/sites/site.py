"""A site: a server in a network of servers. The machines of `rtfilter.overlay` decide who subscribes at whom.

A message between machines is a directive of a session. What a neighbour wants becomes subscriptions of a user
with its name here, so that its events wait for it in a backlog as those of every user do.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.overlay.broker_machine import Broker, Out
from rtfilter.overlay.broker_names import BrokerMessage, Send, SubscriptionId
from rtfilter.overlay.codec import Codec
from rtfilter.overlay.membership import Contact, Membership, MembershipSettings, RendezvousPoint
from rtfilter.overlay.membership.contacts import RENDEZVOUS_POINT, Audience
from rtfilter.overlay.membership.rendezvous_point import AskRoot, ClaimRoot, RenewRoot, Root, RootIs
from rtfilter.overlay.router import Router
from rtfilter.overlay.routing_messages import Confirm, RouterSubscriptions
from rtfilter.overlay.switching import Switched
from rtfilter.service.concurrency import Turn
from rtfilter.service.owners import OF_SITE
from rtfilter.service.service_errors import BusyError, ConflictError, RequestError
from rtfilter.service.sites.arriving import Arriving
from rtfilter.service.sites.catching_up import CatchingUp, KnownSite, Positions
from rtfilter.service.sites.peers import Credentials, Hello, Peers
from rtfilter.service.sites.shown import NeighbourShown, OriginShown, SiteShown
from rtfilter.service.sites.wants import Wants
from rtfilter.service.stages import StagePart, Stages
from rtfilter.store.log_tables import Entry, Kind, Logged
from rtfilter.store.site_table import SiteTable

TICKS: Final = 10
"""Ticks per heartbeat."""
GRACE: Final = 5
"""Heartbeats for which the subscriptions of a lost neighbour stay, and nothing is confirmed."""
POINT: Final = "rendezvous point"
"""The name under which the rendezvous point sends."""
STORED: Final = 2.0
"""Seconds after which the positions of other sites are stored again."""
_log = logging.getLogger(__name__)
_Input = Callable[[float], list[Out]]


class SiteSettings(NamedTuple):
    """The settings of a site.

    Attributes
    ----------
    name, cluster : str
        Names without a colon; sites of a cluster are near each other.
    address : str
        The URL at which other sites reach this one.
    rendezvous : str
        The address of the site that knows the root; it may be this one.
    who : Credentials
        The user that this site is at others.
    strategy : str
        One of `rtfilter.overlay.strategies.STRATEGIES`, the same at all sites.
    assigned : mapping of str to str
        Clusters of `rtfilter.overlay.strategies.Rendezvous`, by filter.
    heartbeat : float
        Seconds, the same at all sites.
    slack : float or None
        See `Router`.
    """

    name: str
    cluster: str
    address: str
    rendezvous: str
    who: Credentials
    strategy: str = "hybrid"
    assigned: Mapping[str, str] = {}
    heartbeat: float = 1.0
    slack: float | None = None


class Enter(BrokerMessage, frozen=True):
    """A sign of life to the rendezvous point, which answers with the sites of the cluster."""

    contact: Contact


class Fellows(BrokerMessage, frozen=True):
    """The sites of a cluster that the rendezvous point has heard of."""

    contacts: tuple[Contact, ...]


class _Owed(NamedTuple):
    """The positions that a neighbour gets once it has taken all deliveries up to a position of this log."""

    upto: int
    positions: Positions


class NetworkSite(StagePart):
    """The machines of a site, their messages, and what follows from them in the log."""

    def __init__(self, stages: Stages, settings: SiteSettings, table: SiteTable) -> None:
        super().__init__(stages)
        self.settings, self._stages, self._table = settings, stages, table
        times = self._times = MembershipSettings(heartbeat=settings.heartbeat)
        self._codec = Codec()
        incarnation = max(int(time.time()), int(table.get("incarnation") or 0) + 1)
        table.put("incarnation", b"%d" % incarnation)
        log = table.get("log")
        if log is None:
            log = secrets.token_hex(6).encode()
            table.put("log", log)
        self._log_id = log.decode()
        contact = Contact(settings.name, settings.cluster, settings.address)
        self._infos = {name: index.info for name, index in self._indexes.items()}
        self._router = Router(
            settings.name,
            incarnation,
            {name: info.schema for name, info in self._infos.items()},
            settings.strategy,
            covering=True,
            grace=GRACE * settings.heartbeat,
            slack=settings.slack,
            longest=self._message // 2,  # it is longer as a message of a session
            assigned=settings.assigned,
        )
        switched = table.get("switched")
        if switched is not None:
            self._router.resume(msgspec.json.decode(switched, type=Switched))
        term = int(table.get("term") or 0)
        membership = Membership(contact, times, incarnation, incarnation, term)
        membership.election.stored_term = term
        self._broker = Broker(self._router, membership)
        root = None
        self._point: RendezvousPoint | None = None
        if settings.rendezvous == settings.address:
            found = table.get("root")
            root = None if found is None else msgspec.json.decode(found, type=Root)
            self._point = RendezvousPoint(times, root, time.monotonic())
        self._kept: dict[str, Any] = {"switched": self._router.switched, "term": term, "root": root}
        self._hello = Hello(settings.strategy, settings.heartbeat, settings.assigned)
        given = settings.cluster, settings.name, settings.who, self._hello
        self._peers = Peers(*given, self._up, self._down)
        self._refused: dict[str, str] = {}  # by site, why its messages are not taken
        self._inputs: asyncio.Queue[_Input] = asyncio.Queue()
        self._arriving: dict[str, tuple[str, asyncio.Task[None]]] = {}  # by site, with the address
        self._own: dict[int, SubscriptionId] = {}
        self._unconfirmed: set[SubscriptionId] = set()  # of `_own`
        self._expected: dict[SubscriptionId, list[asyncio.Event]] = {}  # by those that wait for all sites
        self._wants = Wants(stages, self._broker, GRACE * settings.heartbeat)
        self._owed: dict[str, _Owed] = {}
        self.catching_up = CatchingUp(stages, settings.name, settings.who, table, self._router)
        self._stored = self._told = 0.0
        self._turn = Turn(self._rounds)
        self._entered: dict[str, tuple[Contact, float]] = {}  # at the rendezvous point, and when
        self._fellows: tuple[Contact, ...] = ()
        self._announced = 0
        self._place = "", "", ""  # the root, the parent and the designated site, as last logged

    # -- inputs ----------------------------------------------------------------------------------------------

    def hear(self, user: str, site: str, cluster: str, message: bytes) -> None:
        """Take a message of another site, by its user. Raises `RequestError` where it is not understood."""
        if site not in (user, POINT):
            raise RequestError(f"the user {user!r} is no site {site!r}: a site is a user of its own name")
        try:
            found = self._codec.decoded(message)
        except ValueError as error:
            raise RequestError(f"the message of {site} is not understood: {error}") from None
        if isinstance(found, Hello):
            self._compare(user, found)
        if user in self._refused:
            raise RequestError(self._refused[user])
        if isinstance(found, Hello):
            return
        if isinstance(found, Positions):
            self.catching_up.hear(found)
        elif isinstance(found, Enter):
            self._enter(found.contact)
        elif isinstance(found, Fellows):
            self._fellows = found.contacts
        elif isinstance(found, AskRoot | ClaimRoot | RenewRoot):
            if self._point is None:
                raise RequestError("this site is not the rendezvous point; all sites need the same one")
            self._inputs.put_nowait(partial(self._ask_point, found, site))
        elif site == POINT:
            self._inputs.put_nowait(partial(self._broker.receive, found, RENDEZVOUS_POINT, ""))
        else:
            if isinstance(found, RouterSubscriptions) and found.ask:
                self.catching_up.anew()  # for that site the link is a new one, though not for this one
            self._inputs.put_nowait(partial(self._receive, found, site, cluster))

    def _compare(self, site: str, hello: Hello) -> None:
        """Refuse a site whose settings differ, or whose name is that of this one."""
        self._refused.pop(site, None)
        if site == self.settings.name:
            self._refused[site] = f"there is another site {site}; give each its own --site"
        for name, mine in msgspec.structs.asdict(self._hello).items():
            theirs = getattr(hello, name)
            if theirs != mine:
                flag = "--" + name.replace("_", "-")
                self._refused[site] = (
                    f"{site} has {flag} {theirs or 'none'}, and {self.settings.name} has {mine or 'none'}; "
                    "start all sites with the same one"
                )

    def _receive(self, message: BrokerMessage, site: str, cluster: str, now: float) -> list[Out]:
        try:
            return self._broker.receive(message, site, cluster, now)
        except Exception as error:  # whatever it is, the other sites go on
            known = isinstance(error, RTFilterError | TypeError | ValueError)
            text = "a message of the site %s is left out: %s; do both have the same filters and attributes?"
            _log.warning(text, site, error, exc_info=not known)
            return []

    def _ask_point(self, message: BrokerMessage, site: str, now: float) -> list[Out]:
        assert self._point is not None
        assert isinstance(message, AskRoot | ClaimRoot | RenewRoot)
        return list(self._point.receive(message, site, now))

    def _enter(self, contact: Contact) -> None:
        """Answer a site, as the rendezvous point, with those of its cluster."""
        now = time.monotonic()
        known, when = self._entered.get(contact.name, (contact, now))
        if known.address != contact.address and now < when + self._times.silence:
            raise RequestError(
                f"there is another site {contact.name}, at {known.address}; give each its own --site"
            )
        self._entered[contact.name] = contact, now
        fellows = tuple(one for one, _ in self._entered.values() if one.cluster == contact.cluster)
        if contact.name == self.settings.name:
            self._fellows = fellows
        else:
            self._peers.send(contact.name, contact.address, Fellows(fellows), POINT)

    def _up(self, name: str) -> None:
        self._inputs.put_nowait(partial(self._broker.linked, name))

    def _down(self, name: str) -> None:
        self._inputs.put_nowait(partial(self._broker.lost, name))

    def changed(self, logged: Logged) -> None:
        """Take a change of the log: what users here want, others must know."""
        position, entry = logged
        self._wants.note(position, entry)
        if entry.manner != OF_SITE:
            id = entry.id_at(position)
            self._inputs.put_nowait(partial(self._change, id, position, entry))

    def _change(self, id: int, position: int, entry: Entry, now: float) -> list[Out]:
        out, former = list[Out](), self._own.pop(id, None)
        waiting = [] if former is None else self._expected.pop(former, [])
        index = self._indexes.get(entry.filter)
        if entry.kind is not Kind.UNSUBSCRIBE and index is not None:
            if self._infos.get(entry.filter) is not index.info:
                self._take_types()
            where = msgspec.json.decode(entry.body)["where"]
            made = SubscriptionId(self.settings.name, int(self._log_id, 16), position)  # after a restart, too
            _, out = self._broker.subscribe("users", entry.filter, where, now, made)
            self._own[id] = made
            if waiting:
                self._expected[made] = waiting
            if made == former:  # it was read twice at the start
                return out
            self._unconfirmed.add(made)
        else:
            _release(waiting)
        if former is not None:
            self._unconfirmed.discard(former)
            out += self._broker.unsubscribe(former, now)
        return out

    def switch(self, strategy: str) -> None:
        """Change the strategy of the whole network, at the root. Raises `ConflictError`."""
        try:
            self._broker.router.require_switch(strategy)
        except ValueError as error:
            raise ConflictError(str(error)) from None
        self._inputs.put_nowait(partial(self._broker.switch, strategy))

    def forget(self, site: str) -> None:
        """Miss no more events of a site that is gone for good. Raises `ConflictError` or `UnknownError`."""
        if site in self._neighbours():
            raise ConflictError(f"{site} is a neighbour of {self.settings.name}: end its server first")
        self.catching_up.forget(site)

    async def everywhere(self, id: int) -> None:
        """Wait until all sites that must know a subscription do."""
        known = asyncio.Event()
        self._inputs.put_nowait(partial(self._expect, id, known))
        await known.wait()

    def _expect(self, id: int, known: asyncio.Event, now: float) -> list[Out]:
        own = self._own.get(id)
        if own is not None and own in self._unconfirmed:
            self._expected.setdefault(own, []).append(known)
        else:
            known.set()
        return []

    @property
    def shown(self) -> SiteShown:
        """The state of the site, for people."""
        settings, membership, place = self.settings, self._broker.membership, self._broker.place
        return SiteShown(
            settings.name,
            settings.cluster,
            settings.address,
            self._router.strategy.name,
            place.root,
            place.parent,
            place.designated,
            membership.root,
            [self._shown(membership.contacts[name]) for name in sorted(self._neighbours())],
            {
                name: OriginShown(known.address, known.position)
                for name, known in sorted(self.catching_up.present.items())
            },
            self.catching_up.settled,
            len(self._wants),
            self._log_id,
            self._log.head,
            self._log.removed,
        )

    def _shown(self, contact: Contact) -> NeighbourShown:
        name, cluster, address = contact.name, contact.cluster, contact.address
        waiting, taking = len(self._deliver.backlog(name).pending), self._deliver.receives(name)
        return NeighbourShown(name, cluster, address, name in self._peers.connected, waiting, taking)

    # -- work ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out what the machines say, until cancelled."""
        await self._read_subscriptions()
        due = time.monotonic()
        while True:
            left = due - time.monotonic()
            if left <= 0:
                due = time.monotonic() + self.settings.heartbeat / TICKS
                await self._tick()
                await self._do(self._broker.tick)
                continue
            try:
                async with asyncio.timeout(left):
                    work = await self._inputs.get()
            except TimeoutError:
                continue
            await self._do(work)

    async def _do(self, work: _Input) -> None:
        try:
            out = work(time.monotonic())
        except (RTFilterError, TypeError, ValueError) as error:
            _log.warning("what a user here wants is not known to other sites: %s", error)
        else:
            await self._carry_out(out)
        await self._turn.pause()

    async def _read_subscriptions(self) -> None:
        after = 0
        while page := await self._surely(self._asides.ask, self._subscriptions, after):
            for position, entry in page:
                after = entry.id_at(position)
                self._wants.note(position, entry)
                if entry.manner != OF_SITE:
                    await self._do(partial(self._change, after, position, entry))

    def _subscriptions(self, after: int) -> list[Logged]:
        return self._log.subscriptions(after=after)

    async def _surely(self, run: Callable[..., Awaitable[Any]], *given: Any) -> Any:
        """Return the result of work on the database, which is asked until it answers."""
        while True:
            try:
                return await run(*given)
            except BusyError:
                await asyncio.sleep(self.settings.heartbeat)

    async def _tick(self) -> None:
        self._take_types()
        self.catching_up.tick()
        self._tell()
        if time.monotonic() - self._told > self.settings.heartbeat:
            self._told = time.monotonic()
            if self._point is not None:
                self._enter(self._broker.membership.contact)
            else:
                self._peers.send(POINT, self.settings.rendezvous, Enter(self._broker.membership.contact))
        if time.monotonic() - self._stored > STORED:
            self._stored = time.monotonic()
            with suppress(BusyError):  # the next time
                await self.catching_up.store()

    def _take_types(self) -> None:
        """Let the machines know filters that were added or extended since, and exchange all wants again."""
        infos = {name: index.info for name, index in self._indexes.items()}
        new = {name: info.schema for name, info in infos.items() if self._infos.get(name) is not info}
        self._infos = infos
        if new:
            self._router.extend(new)
            for name in self._peers.connected:
                self._down(name)
                self._up(name)

    def _tell(self) -> None:
        """Tell neighbours how far they have all events, once they have taken what that speaks of.

        What was dropped for lack of room, they read before: they hear of it with a later delivery.
        """
        contacts = self._broker.membership.contacts
        for name in self._arriving:
            owed, untold = self._owed.get(name), self._deliver.backlog(name).untold
            ready = owed is not None and self._wants.taken(name) >= owed.upto and not untold
            if owed is not None and ready and name in contacts:
                self._peers.send(name, contacts[name].address, owed.positions)
                owed = None
            if owed is None:
                position = max(self._match.last, self._match.settled)
                mine = KnownSite(self.settings.address, position, self._log_id, self.catching_up.turns)
                self._owed[name] = _Owed(
                    mine.position, Positions({**self.catching_up.known, self.settings.name: mine})
                )

    async def _carry_out(self, out: list[Out]) -> None:
        await self._keep()
        self._log_place()
        self._follow_links()
        await self._wants.reflect()
        for one in out:
            if isinstance(one, Send):
                self._confirm(one.message)
                continue
            match one.to.audience:
                case Audience.BROKER if one.to.name == self.settings.name:  # from the rendezvous point here
                    self._inputs.put_nowait(partial(self._broker.receive, one.message, RENDEZVOUS_POINT, ""))
                case Audience.BROKER:
                    sender = POINT if isinstance(one.message, RootIs) else ""
                    self._peers.send(one.to.name, one.to.address, one.message, sender)
                case Audience.RENDEZVOUS if self._point is not None:
                    self._inputs.put_nowait(partial(self._ask_point, one.message, self.settings.name))
                case Audience.RENDEZVOUS:
                    self._peers.send(POINT, self.settings.rendezvous, one.message)
                case Audience.CLUSTER:
                    for other in self._cluster():
                        self._peers.send(other.name, other.address, one.message)

    def _cluster(self) -> list[Contact]:
        """Return the other sites of the cluster that are known, present or not."""
        known = {one.name: one for one in (*self._fellows, *self._broker.membership.contacts.values())}
        return [
            one
            for one in known.values()
            if one.cluster == self.settings.cluster and one.name != self.settings.name
        ]

    async def _keep(self) -> None:
        """Store the state that must outlive this process, before a message speaks of it."""
        membership, point = self._broker.membership, self._point
        now = {
            "switched": self._router.switched,
            "term": membership.term,
            "root": None if point is None else point.root,
        }
        for name, value in now.items():
            if value != self._kept[name]:
                stored = msgspec.json.encode(value)
                await self._surely(self._store.change, self._table.put, name, stored)
        self._kept = now
        membership.election.stored_term = membership.term

    def _confirm(self, message: BrokerMessage) -> None:
        """Answer those that wait for a subscription which all sites know now."""
        if isinstance(message, Confirm):
            self._unconfirmed.discard(message.id)
            _release(self._expected.pop(message.id, []))

    def _log_place(self) -> None:
        """Log the root, the cluster above and who stands for this cluster, where they have changed."""
        place, root = self._broker.place, self._broker.membership.root
        placed = place.designated and (place.root or place.parent)
        now = (root, place.parent, place.designated) if placed else ("", "", "")
        if now == self._place or (placed and not root):  # the root becomes known soon
            return
        self._place = now
        if not placed:
            _log.info("cluster %s has no place in the tree, and looks for one", place.cluster)
        elif place.root:
            _log.info(
                "cluster %s is the root of the tree now; %s stands for it", place.cluster, place.designated
            )
        else:
            _log.info(
                "the root of the tree is cluster %s; above cluster %s, for which %s stands, is %s",
                *(root, place.cluster, place.designated, place.parent),
            )

    def _neighbours(self) -> dict[str, str]:
        """Return the addresses of the sites that events come from, by name."""
        contacts = self._broker.membership.contacts
        return {name: contacts[name].address for name in self._broker.place.neighbours if name in contacts}

    def _follow_links(self) -> None:
        """Take events from the neighbours of now, and read what was missed where they have changed."""
        neighbours = self._neighbours()
        former = {name: address for name, (address, _) in self._arriving.items()}
        announced, self._announced = self._announced, self._router.announced
        if neighbours == former and announced == self._announced:
            return
        for name in former:
            if neighbours.get(name) != former[name]:
                self._arriving.pop(name)[1].cancel()
                self._owed.pop(name, None)
        for name, address in neighbours.items():
            if name not in self._arriving:
                who, missed = self.settings.who, self.catching_up.anew
                arriving = Arriving(self._stages, self.settings.name, name, address, who, missed)
                self._arriving[name] = address, asyncio.create_task(arriving.run())
        self.catching_up.anew()

    async def close(self) -> None:
        """End all connections."""
        tasks = [task for _, task in self._arriving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.catching_up.close()
        await self._peers.close()


def _release(waiting: Iterable[asyncio.Event]) -> None:
    for one in waiting:
        one.set()
