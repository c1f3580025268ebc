"""The registry of living processes: it lets releases overlap, and refuses those that can't.

    start ──► register ──► refuse a newer store, or a release that can't work beside a living one
                 │
                 ▼
    migrate: only add while another release lives ──► heartbeat ──► the other ended: fill what it left out
                                                          └──► another is silent: release its claims

A process registers before it looks at the others: of two that start at once at least one sees the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from holdfast.errors import ConflictError, HoldfastError, IncompatibleReleaseError, NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.processes.decision import (
    Writers,
    conflicts,
    describe,
    differs,
    filled,
    is_newer,
    joined,
    newer_collections,
    release_of,
    stale_columns,
)
from holdfast.kit.processes.models import STATE_ID, Process, Release, SchemaState
from holdfast.kit.processes.takeover import Takeover
from holdfast.kit.worker_loop import process_id, worker_id
from holdfast.model import Document, schema_of
from holdfast.store import ABSENT, MigrationRequest, Query, Snapshot, Store, Transaction, delete, patch, put

BEAT_S: Final = 2.0
LIVE_S: Final = 30.0
HANG_S: Final = 5.0
LIVING_MAX: Final = 1_000
PROCESS_DOCUMENTS: Final = (Process, Release, SchemaState)
_log: Final = structlog.get_logger("holdfast.processes")


class ProcessRegistry:
    """This process among those that work on the store. `start` it before the first write, `close` it last.

    `claimed` are the collections in which the claims of processes that are gone are released.

    Example:
        registry = ProcessRegistry(store, version="0.8.0")
        steps = await registry.start()
    """

    def __init__(
        self, store: Store, *, version: str, claimed: Sequence[type[Document]] = (), key_id: str = ""
    ) -> None:
        self.store, self._store, self._clock = store, store.tenant(NO_TENANT), store.clock
        self.release, self.id = release_of(store.catalog, version), worker_id()
        self._takeover, self._key_id = Takeover(store, claimed), key_id
        self.refusal: IncompatibleReleaseError | None = None
        self.refused = asyncio.Event()
        self._releases: dict[str, Release] = {self.release.id: self.release}
        self._seen_at: datetime | None = None
        self._fault, self._beating_since_s = "", 0.0
        self._beating: asyncio.Task[None] | None = None
        self._filling: asyncio.Task[None] | None = None

    async def start(self, *, migrate: bool = True) -> list[str]:
        """Register, migrate as far as living processes allow, and keep the heartbeat; return the steps.

        Raises IncompatibleReleaseError where this release can't work on the store now.
        """
        if migrate:
            await self.store.migrate(MigrationRequest(only=tuple(map(schema_of, PROCESS_DOCUMENTS))))
        try:
            others = await self._register()
            steps = await self._migrate(others) if migrate else []
            await self._join()
        except BaseException:
            await self._deregister()
            raise
        self._beating = asyncio.create_task(self._beat_until_cancelled())
        return steps

    @property
    def problem(self) -> str | None:
        """Why the heartbeat can't be written at this moment; None where it can."""
        # By real time, whatever the clock says: a beat that hangs is a store that hangs.
        waited_s = time.monotonic() - self._beating_since_s if self._beating_since_s else 0.0
        return f"no write has succeeded for {waited_s:.0f} s" if waited_s > HANG_S else self._fault or None

    async def living(self) -> list[Process]:
        """The processes whose heartbeat is recent, this one included."""
        return await living_processes(self.store)

    async def other_releases(self) -> list[Process]:
        """The living processes that store some collection differently."""
        others = [one for one in await self.living() if one.id != self.id]
        releases = await self._load(one.release_id for one in others)
        return [
            one
            for one in others
            if one.release_id in releases and differs(self.release, releases[one.release_id])
        ]

    async def beat(self) -> None:
        """Renew the heartbeat. A process that was silent for too long registers again, or is refused."""
        now = self._clock.now()
        try:
            if self._seen_at is None or (now - self._seen_at).total_seconds() > LIVE_S:
                raise NotFoundError("others may have taken this process for dead")
            await self._store.commit(patch(Process, self.id, changes={"seen_at": now, "released": False}))
            self._seen_at = now
        except NotFoundError:
            await self._register()
            await self._join()
        await self._takeover.look()
        await self._look_for_gaps()

    async def close(self) -> None:
        """End the heartbeat and leave the registry."""
        await self.end_heartbeat()
        await self._deregister()

    async def end_heartbeat(self) -> None:
        """Stay registered without a heartbeat; other processes then take this one for dead."""
        tasks = [task for task in (self._beating, self._filling) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self) -> list[Process]:
        now = self._clock.now()
        me = Process(
            id=self.id, name=process_id(), host=socket.gethostname(), pid=os.getpid(),
            version=self.release.version, release_id=self.release.id, key_id=self._key_id, started_at=now,
            seen_at=now,
        )  # fmt: skip
        await self._store.commit(put(me), put(self.release))
        self._seen_at = now
        state = await self._store.get(SchemaState, STATE_ID)
        newer = newer_collections(self.release, state.doc) if state else []
        if state and newer:
            raise IncompatibleReleaseError(
                f"the store is newer than this release, Holdfast {self.release.version}: {'; '.join(newer)}. "
                f"Start Holdfast {state.doc.version} or newer, or restore a backup from before that upgrade"
            )
        return await self._compatible_others()

    async def _compatible_others(self) -> list[Process]:
        others = await self.other_releases()
        for other in others:
            if found := conflicts(self.release, self._releases[other.release_id]):
                raise IncompatibleReleaseError(
                    f"{describe(other)} works here and declares {'; '.join(found)}, so this release can't "
                    f"run beside it: stop it, then start again ({LIVE_S:.0f} s later if it was killed)"
                )
        if others:
            _log.warning("another release works on this store", others=[describe(one) for one in others])
        return others

    async def _migrate(self, others: Sequence[Process]) -> list[str]:
        if others:
            return await self.store.migrate(MigrationRequest(other_releases=True))
        return await self._fill(await self._store.get(SchemaState, STATE_ID))

    async def _fill(self, state: Snapshot[SchemaState] | None) -> list[str]:
        """Migrate, fill what other releases left out, and record that, unless somebody started meanwhile."""
        writers = state.doc.writers if state else {}
        releases = await self._writers_of(writers)
        stale, catalog = stale_columns(self.release, writers, releases), self.store.catalog
        names = {schema: stale.get(catalog.table(schema)) for schema in catalog.schemas}
        request = MigrationRequest(refill={schema: columns for schema, columns in names.items() if columns})
        steps = await self.store.migrate(request)
        recorded = self._next_state(state, filled(self.release, writers, releases))
        with contextlib.suppress(ConflictError):
            await self._store.commit(put(recorded, expect=state.unchanged if state else ABSENT))
        return steps

    async def _join(self) -> None:
        """Record that this release may write.

        Every start is a write here, so that no fill is recorded over a process that it did not see.
        """

        async def act(tx: Transaction) -> None:
            stored = await tx.get(SchemaState, STATE_ID)
            writers = stored.doc.writers if stored else {}
            releases = await self._writers_of(writers)
            tx.write(put(self._next_state(stored, joined(self.release, writers, releases))))

        await self._store.transact(act)

    def _next_state(self, stored: Snapshot[SchemaState] | None, writers: dict[str, list[str]]) -> SchemaState:
        version, versions = (stored.doc.version, stored.doc.versions) if stored else ("", {})
        mine = {name: max(one.version, versions.get(name, 1)) for name, one in self.release.layouts.items()}
        newest = version if is_newer(version, than=self.release.version) else self.release.version
        return SchemaState(
            version=newest, versions={**versions, **mine}, writers=writers, at=self._clock.now()
        )

    async def _writers_of(self, writers: Writers) -> dict[str, Release]:
        return await self._load(id for ids in writers.values() for id in ids)

    async def _load(self, ids: Iterable[str]) -> dict[str, Release]:
        """The releases with these ids; their documents never change."""
        unknown = [id for id in dict.fromkeys(ids) if id not in self._releases]
        found = await self._store.get_many(Release, unknown) if unknown else []
        self._releases |= {one.doc.id: one.doc for one in found if one is not None}
        return self._releases

    async def _look_for_gaps(self) -> None:
        """Once no other release lives, fill what those that wrote have left out."""
        state = await self._store.get(SchemaState, STATE_ID)
        if state is None or (self._filling is not None and not self._filling.done()):
            return
        writers = state.doc.writers
        if filled(self.release, writers, await self._writers_of(writers)) == writers:
            return
        same = [one.id for one in await self.living() if one.release_id == self.release.id]
        if min(same, default=self.id) == self.id and not await self.other_releases():
            self._filling = asyncio.create_task(self._fill_in_background(state))

    async def _fill_in_background(self, state: Snapshot[SchemaState]) -> None:
        try:
            steps = await self._fill(state)
        except HoldfastError as fault:
            _log.warning("filling what another release left out failed; retrying", reason=fault.message)
        else:
            _log.info("no other release works on this store any more", steps=steps)

    async def _beat_until_cancelled(self) -> None:
        while not self.refused.is_set():
            await self._clock.sleep(BEAT_S)
            self._beating_since_s = time.monotonic()
            try:
                await self.beat()
                self._fault = ""
            except IncompatibleReleaseError as fault:
                _log.error("this release can't go on", reason=fault.message)
                await self._deregister()
                self.refusal = fault
                self.refused.set()
            except HoldfastError as fault:
                self._fault = fault.message
                _log.warning("heartbeat failed; retrying", reason=fault.message)
            finally:
                self._beating_since_s = 0.0

    async def _deregister(self) -> None:
        # Its heartbeat ends in any case.
        with contextlib.suppress(HoldfastError):
            await self._store.commit(delete(Process, self.id))


async def living_processes(store: Store) -> list[Process]:
    """The processes that work on a store: those whose heartbeat is recent."""
    since = store.clock.now() - timedelta(seconds=LIVE_S)
    query = Query(Process).where("seen_at", ">", since).order_by("seen_at").limit(LIVING_MAX)
    return (await store.tenant(NO_TENANT).query(query)).docs


async def store_state(store: Store) -> SchemaState | None:
    """What is recorded of the store's schema; None where nothing is."""
    found = await store.tenant(NO_TENANT).get(SchemaState, STATE_ID)
    return None if found is None else found.doc
