"""The filters of the server, by name: added, changed and removed while events are matched."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.basics.options import Named, whole
from rtfilter.basics.text import composed, shown
from rtfilter.definition import DEFAULT_CONTROLLER, Definition
from rtfilter.events.schema import Attribute
from rtfilter.filter import inside
from rtfilter.matching.choosing import AUTO
from rtfilter.service import snapshots
from rtfilter.service.log_matcher import Index, hash_of, key_of
from rtfilter.service.owners import owned_of
from rtfilter.service.parse import Parse
from rtfilter.service.records import FilterInfo
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import (
    BusyError,
    ConflictError,
    RequestError,
    TooManyError,
    UnknownError,
    require_text,
)
from rtfilter.service.stages import Ending, StagePart, Stages
from rtfilter.store.log import FilterRow
from rtfilter.store.log_tables import Entry
from rtfilter.watch.metrics import Metrics

MOST_FILTERS: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MakeMetrics = Callable[[FilterInfo], Metrics | None]


class Hosted(StagePart):
    """The filters, each with its index; stored indexes are in `folder`."""

    def __init__(self, stages: Stages, folder: Path, ending: Ending, metrics: MakeMetrics) -> None:
        super().__init__(stages)
        self._folder, self._ending, self._metrics = folder, ending, metrics
        self._leaving: set[str] = set()  # filters that are being removed: nothing is taken in for them
        self._one = asyncio.Lock()  # is added or removed at a time
        self._followed: list[FilterRow] = []

    def open(self, settled: int) -> int:
        """Open the filters of the log as of a position; return the changes that no stored index has."""
        snapshots.claim(self._folder, self._log.epoch)
        count = self._open_all(settled)
        known = {snapshots.name_of(index.info) for index in self._indexes.values()}
        snapshots.remove_others(self._folder, known)  # a filter that is added may get the name of one
        return count

    def build(self, settled: int) -> None:
        """Build the filters of a log that another server owns, as of a position."""
        snapshots.disclaim(self._folder)
        self._open_all(settled)

    def own(self) -> int:
        """Keep indexes beside the log from now on; return the changes that no stored index has."""
        snapshots.claim(self._folder, self._log.epoch)
        return sum(len(index.filter) for index in self._indexes.values())

    def _open_all(self, settled: int) -> int:
        count = 0
        for row in self._log.filters():
            info = _info(row)
            index, changes = snapshots.open_index(self._folder, info, self._log, settled, self._metrics(info))
            self._add(index)
            count += changes
        return count

    async def follow(self) -> None:
        """Make the filters those of the log, which another server adds, changes and removes."""
        rows = await asyncio.to_thread(self._log.filters)
        if rows == self._followed:
            return
        infos = {row.name: _info(row) for row in rows}
        for name, index in list(self._indexes.items()):
            if name not in infos or infos[name].since != index.info.since:
                self._drop(name)
        for name, info in infos.items():
            if name not in self._indexes:
                self._add(Index(info, snapshots.empty(info, self._metrics(info))))
            index = self._indexes[name]
            if index.info.definition != info.definition:
                await self._extended(index, info.definition)
                await self._rematched(index, info.definition)
                index.info = info
        self._followed = rows

    def _add(self, index: Index) -> None:
        self._indexes[index.info.name] = index
        self._measures.begin(index.info.name)

    def had(self, name: str, position: int) -> bool:
        """Return whether an entry of the log belongs to the present filter of a name."""
        return name in self._indexes and position >= self._indexes[name].info.since

    def read_owners(self, position: int | None = None) -> None:
        """Take the subscriptions of the log as owners know them, now or at a position."""
        for owner in self._log.owners(position):
            owned = owned_of(*owner)
            if self.had(owned.filter, owned.id):  # or it was asked for while its filter was removed
                self._owners.put(owned)

    def all(self) -> list[Index]:
        """Return the indexes of all filters, by name."""
        return [self._indexes[name] for name in sorted(self._indexes.keys() - self._leaving)]

    def index(self, name: str) -> Index:
        """Return the index of a filter. Raises `UnknownError`."""
        found = self._indexes.get(name)
        if found is None or name in self._leaving:
            raise UnknownError(f"there is no filter {name!r}")
        return found

    def parse(self, name: str) -> Parse:
        """Return the parser of a filter's events. Raises `UnknownError`."""
        most = self._message // 2  # bytes of an event, so that it can be sent
        return Parse(self.index(name).info.schema, most)

    def key_of(self, entry: Entry) -> int | None:
        """Return the key of a stored event; see `UserDelivery`."""
        name = None if entry.filter not in self._indexes else self._indexes[entry.filter].info.key
        if name is None:
            return None
        return hash_of(entry.filter, key_of(msgspec.json.decode(entry.body), name))

    async def add(
        self, who: Identity, name: str, definition: Definition, key: str | None = None
    ) -> FilterInfo:
        """Add a filter, or change the matching of one with the same key, or add attributes. For admins.

        Events are matched with the former matcher while another one is built. Raises `RequestError`, and
        `ConflictError` if the name belongs to another filter, or its matcher cannot be changed to this one.
        """
        who.require(Role.ADMIN)
        if not _NAME.fullmatch(name):
            raise RequestError("a filter's name has 1 to 64 letters, digits and _.- (these not at the start)")
        require_text(key)
        key = None if key is None else composed(key)
        if key is not None and key not in definition.schema.attributes:
            raise RequestError(f"the key {key!r} is no attribute of the schema")
        try:
            definition.require_whole("a server")
        except ValueError as error:
            raise RequestError(str(error)) from None
        async with self._one:
            if name in self._leaving:
                raise BusyError(f"the filter {name!r} could not be removed; remove it again", 1.0)
            if name not in self._indexes:
                if len(self._indexes) >= MOST_FILTERS:
                    raise TooManyError(f"there are {MOST_FILTERS} filters already; remove one first")
                row = await self._store.change(self._log.put_filter, name, _stored(definition), key)
                info = _info(row)
                self._add(Index(info, snapshots.empty(info, self._metrics(info))))
            index = self._indexes[name]
            added = definition.schema.added_to(index.info.schema)
            if added is None or index.info.key != key:
                raise ConflictError(
                    f"there is a filter {name!r} with another schema or key already; repeat its attributes "
                    "and key, and add attributes, or take another name"
                )
            if added:
                await self._extend(index, added)
            definition = replace(definition, schema=index.info.schema)
            if index.info.definition != definition:
                await self._redefine(index, definition)
            return index.info

    async def _extend(self, index: Index, added: Mapping[str, Attribute]) -> None:
        """Add attributes to a filter: first in the log, after which each start adds them."""
        info = index.info
        try:
            wanted = replace(info.definition, schema=info.schema.extended(added))
        except ValueError as error:  # the matcher does not take them
            raise RequestError(str(error)) from None
        await self._store.change(self._log.redefine_filter, info.name, _stored(wanted))
        await self._extended(index, wanted)
        index.info = index.info._replace(definition=wanted)

    async def _extended(self, index: Index, wanted: Definition) -> None:
        missing = wanted.schema.added_to(index.filter.schema)
        if missing:  # or an earlier call was interrupted after this
            await self._asides.beside.run(index.filter.add_attributes, missing)

    async def _redefine(self, index: Index, new: Definition) -> None:
        """Change the matching of a filter, then the log; if that fails, the change ends with the server."""
        former = index.info.definition.matcher
        if new.matcher != former and (new.matcher is None or AUTO in (_name(former), _name(new.matcher))):
            raise ConflictError(
                f"the matcher of the filter {index.info.name!r} is {shown(former)}, which cannot "
                f"be changed to {shown(new.matcher)}; name a matcher, and neither may be {AUTO!r}"
            )
        await self._rematched(index, new)
        await self._store.change(self._log.redefine_filter, index.info.name, _stored(new))
        index.info = index.info._replace(definition=new)

    async def _rematched(self, index: Index, new: Definition) -> None:
        former, filter = index.info.definition, index.filter
        if new.matcher != former.matcher:
            await self._asides.beside.run(filter.repack, whole(new.matcher))
        if new.controller != former.controller:
            filter.configure(controller=new.controller or DEFAULT_CONTROLLER)
        filter.configure(order=new.order)

    async def remove(self, who: Identity, name: str) -> None:
        """Remove a filter with its subscriptions. For admins."""
        who.require(Role.ADMIN)
        async with self._one:
            if name not in self._indexes:
                raise UnknownError(f"there is no filter {name!r}")
            self._leaving.add(name)
            try:
                await self._store.put([])  # after this, those that were being put in are known
                await self._ending.remove_all(lambda owned: owned.filter == name, "its filter was removed")
            except RTFilterError:
                self._leaving.discard(name)  # it stays as before: its index has missed nothing
                raise
            await self._store.change(self._log.remove_filter, name)  # or it is to be asked for again
            self._drop(name)
            self._leaving.discard(name)

    def _drop(self, name: str) -> None:
        metrics = inside(self._indexes.pop(name).filter).metrics
        if metrics:
            metrics.leave()
        self._measures.forget(name)


def _info(row: FilterRow) -> FilterInfo:
    key = None if row.key is None else composed(row.key)
    return FilterInfo(row.name, Definition.from_json(msgspec.json.decode(row.schema)), key, row.since)


def _stored(definition: Definition) -> bytes:
    return msgspec.json.encode(definition.to_json())


def _name(named: Named | None) -> str | None:
    found = whole(named)
    return None if found is None else found["name"]
