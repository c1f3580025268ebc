"""The watches of one set: lookup, and changes from outside their holder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from holdfast.clock import from_us
from holdfast.errors import AlreadyExistsError, ConflictError, HoldfastError, NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.channels import decision
from holdfast.kit.channels.decision import ChannelPolicy, Idle, decide
from holdfast.kit.channels.ids import watch_id_of, watch_ids
from holdfast.kit.channels.models import ChannelFields, OpenChannel, Watch
from holdfast.store import ABSENT, PRESENT, Query, Store, Transaction, Write, check, create, put

PAGE: Final = 500
LOADED_PAGE: Final = 2_000
CONCURRENCY: Final = 100
RESCAN_S: Final = 3_600.0

Change = Callable[[Watch, datetime], Watch]


class WatchRegistry:
    """Finds and changes watches. `known` maps the stored open channels to what they watch."""

    def __init__(
        self, store: Store, kind: type[ChannelFields], *, name: str, key_id: str, life: ChannelPolicy
    ) -> None:
        self._store, self._clock = store, store.clock
        self._tenant_id = store.tenant_id or NO_TENANT
        self._kind, self._name, self._key_id, self._life = kind, name, key_id, life
        self._wanted: set[str] | None = None
        self._scanned_s = 0.0
        self.known: dict[str, str] = {}

    async def load(self) -> int:
        """Load the stored open channels into `known`."""
        async for stored in self._store.scan(self._active()):
            self.known[stored.doc.channel_id] = stored.doc.watched_id
        return len(self.known)

    def _active(self) -> Query[ChannelFields]:
        return Query(self._kind).where("status", "==", "active").order_by("expiration").limit(LOADED_PAGE)

    async def set_wanted(self, wanted: set[str]) -> None:
        first = self._wanted is None
        fresh = self._clock.monotonic() - self._scanned_s < RESCAN_S
        if wanted == self._wanted and fresh:
            return
        existing = {watch.watched_id: watch async for watch in self.all()}
        await self._add(sorted(wanted - existing.keys()))
        reenabled = [existing[id].id for id in wanted & existing.keys() if not existing[id].wanted]
        await self.change_each(reenabled, decision.enable)
        dropped = [watch.id for id, watch in existing.items() if watch.wanted and id not in wanted]
        await self.change_each(dropped, decision.disable)
        if first:
            # Keys change with a restart alone. Done once, so that processes whose keys differ come to rest.
            renew = partial(decision.renew_if_old_key, key_id=self._key_id)
            await self.change_each(_ids_of_old_keys(existing.values(), self._key_id), renew)
            await self._adopt(existing)
        self._wanted, self._scanned_s = wanted, self._clock.monotonic()

    async def _add(self, watched_ids: list[str]) -> None:
        for start in range(0, len(watched_ids), PAGE):
            some = watched_ids[start : start + PAGE]
            outcomes = await self._store.settle([self._create_writes(id, wanted=True) for id in some])
            for id, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, ConflictError):
                    await self._add_second(id)
                elif isinstance(outcome, HoldfastError):
                    raise outcome

    def _create_writes(self, watched_id: str, *, wanted: bool, second: bool = False) -> list[Write]:
        """A new watch under its first or second id; never under both."""
        ids = watch_ids(self._name, self._tenant_id, watched_id)
        now = self._clock.now()
        watch = Watch(
            id=ids[second], tenant_id=self._tenant_id, name=self._name, watched_id=watched_id, wanted=wanted,
            status="opening" if wanted else "ending", due_at=now,
        )  # fmt: skip
        return [create(watch), check(Watch, ids[not second], expect=PRESENT if second else ABSENT)]

    async def _add_second(self, watched_id: str, *, wanted: bool = True) -> None:
        """The id is taken: by this very watch, created by another process, or by one that looks alike."""
        if not await self.ids_of([watched_id]):
            with contextlib.suppress(AlreadyExistsError):
                await self._store.commit(*self._create_writes(watched_id, wanted=wanted, second=True))
        for id in (await self.ids_of([watched_id])).values():
            if wanted:
                await self.change(id, decision.enable)

    async def _adopt(self, existing: Mapping[str, Watch]) -> None:
        """Adopt active channels that no watch has: another system's, or an older version's."""
        async for stored in self._store.scan(self._active()):
            channel = stored.doc
            self.known[channel.channel_id] = channel.watched_id
            watch = existing.get(channel.watched_id)
            if watch is None or not decision.has_channel(watch, channel.channel_id):
                await self._adopt_channel(channel)

    async def _adopt_channel(self, channel: ChannelFields) -> None:
        ids = await self.ids_of([channel.watched_id])
        if not ids:
            try:
                await self._store.commit(*self._create_writes(channel.watched_id, wanted=False))
            except ConflictError:
                await self._add_second(channel.watched_id, wanted=False)
            ids = await self.ids_of([channel.watched_id])

        async def act(tx: Transaction) -> None:
            # Read together with the watch: a channel that a renewal has replaced must not come back.
            stored = await tx.get(self._kind, channel.channel_id)
            if stored is not None and stored.doc.status == "active":
                adopted = open_channel_of(stored.doc)
                await self._apply_change(
                    tx,
                    ids[channel.watched_id],
                    lambda watch, _: decision.adopt_channel(watch, adopted, life=self._life),
                )

        await self._store.transact(act)

    async def all(self) -> AsyncIterator[Watch]:
        query = Query(Watch).where("name", "==", self._name).order_by("status").limit(PAGE)
        async for stored in self._store.scan(query):
            yield stored.doc

    async def ids_of(self, watched_ids: Iterable[str]) -> dict[str, str]:
        requested = dict.fromkeys(watched_ids)
        candidates = [id for one in requested for id in watch_ids(self._name, self._tenant_id, one)]
        stored: dict[str, str] = {}
        for start in range(0, len(candidates), PAGE):
            for one in await self._store.get_many(Watch, candidates[start : start + PAGE]):
                if one is not None and one.doc.watched_id in requested and one.doc.name == self._name:
                    stored[one.doc.watched_id] = one.doc.id
        return stored

    async def read(self, ids: Mapping[str, str]) -> dict[str, Watch]:
        all_ids = list(ids.values())
        stored: dict[str, Watch] = {}
        for start in range(0, len(all_ids), PAGE):
            for one in await self._store.get_many(Watch, all_ids[start : start + PAGE]):
                if one is not None:
                    stored[one.doc.watched_id] = one.doc
        return stored

    async def change(self, id: str, change: Change) -> None:
        await self._store.transact(lambda tx: self._apply_change(tx, id, change))

    async def change_each(self, ids: Iterable[str], change: Change) -> None:
        all_ids = list(ids)
        for start in range(0, len(all_ids), CONCURRENCY):
            await asyncio.gather(*(self.change(id, change) for id in all_ids[start : start + CONCURRENCY]))

    async def _apply_change(self, tx: Transaction, id: str, change: Change) -> None:
        await apply_change(tx, id, change, now=self._clock.now())

    async def release(self, channel_id: str, tx: Transaction) -> None:
        """Release a channel; NotFoundError when neither a document nor a watch has it."""
        stored = await self._store.get(self._kind, channel_id)
        held, watch_id = None, watch_id_of(channel_id)
        if stored is not None and stored.doc.status == "active":
            await self._adopt_channel(stored.doc)
            held = open_channel_of(stored.doc)
            watch_id = (await self.ids_of([stored.doc.watched_id]))[stored.doc.watched_id]
        watch = await tx.get(Watch, watch_id) if watch_id else None
        if watch is None or not (held or decision.has_channel(watch.doc, channel_id)):
            raise NotFoundError(f"no open channel {channel_id!r}")
        await self._apply_change(
            tx, watch_id, lambda watch, now: decision.release_channel(watch, channel_id, held)
        )


async def apply_change(tx: Transaction, id: str, change: Change, *, now: datetime) -> bool:
    """Change a watch in the caller's transaction and make it due accordingly; False where nothing changed."""
    stored = await tx.get(Watch, id)
    if stored is None:
        return False
    watch = decision.update_status(change(stored.doc, now), now)
    if not _is_claimed(stored.doc, now):
        # A claimed watch keeps its due time: its holder sees the change when it settles.
        step = decide(watch, now)
        watch = replace(watch, due_at=step.until if isinstance(step, Idle) else now, owner="")
    if watch != stored.doc:
        tx.write(put(watch))
    return watch != stored.doc


def _ids_of_old_keys(watches: Iterable[Watch], key_id: str) -> list[str]:
    return [one.id for one in watches if one.wanted and one.current is not None and one.key_id != key_id]


def open_channel_of(channel: ChannelFields) -> OpenChannel:
    return OpenChannel(
        channel_id=channel.channel_id, resource_id=channel.resource_id,
        ends_at=from_us(channel.expiration * 1000),
    )  # fmt: skip


def _is_claimed(watch: Watch, now: datetime) -> bool:
    return watch.owner != "" and watch.due_at is not None and watch.due_at > now
