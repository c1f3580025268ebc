"""Takeover from processes that are gone: what they have claimed is made due for the living at once.

A process is taken for gone once another has seen its heartbeat stand still for `SILENT_S` while its own went
on. Both are measured by the observer's monotonic clock: neither a jump of a clock nor an outage of the store,
in which everybody is silent, makes anybody look dead. Whoever was only paused is fenced like after a lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from holdfast.errors import ConflictError, NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.processes.decision import describe
from holdfast.kit.processes.models import Process
from holdfast.model import Document
from holdfast.store import Query, Snapshot, Store, patch

SILENT_S: Final = 5.0
# An observer that itself was silent for longer starts anew: it can't tell who else was.
OBSERVED_S_MAX: Final = 4.0
OBSERVED_MAX: Final = 1_000
_log: Final = structlog.get_logger("holdfast.processes")


class SilenceObserver:
    """How long each process's heartbeat has stood still, as this process saw it. Pure."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[datetime, float]] = {}
        self._observed_s: float | None = None

    def observe(self, processes: Sequence[Process], monotonic_s: float) -> list[str]:
        """Return the ids of those that have been silent for too long."""
        if self._observed_s is None or monotonic_s - self._observed_s > OBSERVED_S_MAX:
            self._since.clear()
        self._observed_s = monotonic_s
        before, self._since = self._since, {}
        for one in processes:
            known = before.get(one.id)
            same = known is not None and known[0] == one.seen_at
            self._since[one.id] = known if known is not None and same else (one.seen_at, monotonic_s)
        return [id for id, (_, since_s) in self._since.items() if monotonic_s - since_s >= SILENT_S]


class Takeover:
    """Releases the claims of processes that are gone, in the collections of `claimed`."""

    def __init__(self, store: Store, claimed: Sequence[type[Document]]) -> None:
        self._store, self._processes = store.privileged(), store.tenant(NO_TENANT)
        self._claimed, self._observer = claimed, SilenceObserver()

    async def look(self) -> int:
        """Look at the heartbeats of all; release what those that are gone have claimed, return how much."""
        query = Query(Process).where("released", "==", False).order_by("seen_at").limit(OBSERVED_MAX)
        found = {item.doc.id: item for item in (await self._processes.query(query)).items}
        silent = self._observer.observe([i.doc for i in found.values()], self._store.clock.monotonic())
        # Registrations of one process share its name, and its claims.
        alive = {item.doc.name for id, item in found.items() if id not in silent}
        return sum([await self._release(found[id]) for id in silent if found[id].doc.name not in alive])

    async def _release(self, gone: Snapshot[Process]) -> int:
        count = 0
        if gone.doc.name:
            for kind in self._claimed:
                count += await self._store.release_claims(kind, f"{gone.doc.name}.")
        changes: dict[str, Any] = {"released": True}
        try:
            await self._processes.commit(patch(Process, gone.doc.id, changes=changes, expect=gone.unchanged))
        except (ConflictError, NotFoundError):
            return count  # it is back, or another has released its claims
        _log.warning("a process is gone; its claims are released", process=describe(gone.doc), claims=count)
        return count
