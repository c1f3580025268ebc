"""Checkpoints to resume from after a crash, written in the same commit as the work they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast.errors import TooLargeError
from holdfast.kit import NO_TENANT
from holdfast.kit.checkpoints.models import CHECKPOINT_INDEXES, CheckpointDocument, CheckpointFields
from holdfast.kit.model_checks import check_model
from holdfast.store.commit import PRESENT, Write, create, patch
from holdfast.store.query import Query
from holdfast.store.store import Store

STATE_BYTES_MAX: Final = 512 * 1024
RETIRED_S: Final = 7 * 86_400.0


class Checkpoints:
    """Checkpoints of one tenant's runs, or of runs without tenants.

    Example:
        before = await checkpoints.latest("run-1")
        await acme.commit(put(page), *checkpoints.writes_checkpoint(
            checkpoints.next("run-1", step_id="fetch", state={"page": 3}, after=before), after=before))
    """

    def __init__(self, store: Store, *, kind: type[CheckpointFields] = CheckpointDocument) -> None:
        check_model(kind, CheckpointFields, path=("checkpoint_id",), indexes=CHECKPOINT_INDEXES)
        self._tenant_id = store.tenant_id or NO_TENANT
        self._store = store.tenant(self._tenant_id)
        self._kind = kind

    async def latest(self, run_id: str) -> CheckpointFields | None:
        """The checkpoint to resume from, or None before the first."""
        query = Query(self._kind).where("run_id", "==", run_id).where("is_latest", "==", True).limit(1)
        page = await self._store.query(query)
        return page.items[0].doc if page.items else None

    async def history(self, run_id: str, *, limit: int = 100) -> list[CheckpointFields]:
        """The run's stored checkpoints, latest first."""
        query = Query(self._kind).where("run_id", "==", run_id).order_by("-number").limit(limit)
        return list((await self._store.query(query)).docs)

    def next(
        self,
        run_id: str,
        *,
        step_id: str,
        state: Mapping[str, Any],
        after: CheckpointFields | None,
        expires_at: datetime | None = None,
    ) -> CheckpointFields:
        """The checkpoint after `after`; `expires_at` where nothing will resume from it."""
        size = len(msgspec.json.encode(state))
        if size > STATE_BYTES_MAX:
            raise TooLargeError(
                f"a state takes at most {STATE_BYTES_MAX:,} bytes; this one {size:,}", "state"
            )
        number = 1 if after is None else after.number + 1
        return self._kind(
            checkpoint_id=f"{run_id}.{number:05}", run_id=run_id, tenant_id=self._tenant_id, step_id=step_id,
            number=number, state=dict(state), created_at=self._store.clock.now(),
            expires_at=expires_at,
        )  # fmt: skip

    def writes_checkpoint(self, new: CheckpointFields, *, after: CheckpointFields | None) -> list[Write]:
        """Writes that make the new checkpoint the latest in place of the one before it."""
        return [create(new), *(self.writes_retire(after, is_latest=False) if after is not None else [])]

    def writes_retire(self, last: CheckpointFields, *, is_latest: bool = True) -> list[Write]:
        """Writes that let a checkpoint expire, because nothing will resume from it."""
        changes = {"is_latest": is_latest, "expires_at": self.expiry()}
        return [patch(self._kind, last.checkpoint_id, changes=changes, expect=PRESENT)]

    def writes_revive(self, last: CheckpointFields) -> list[Write]:
        """Writes that keep a checkpoint after all, because something resumes from it."""
        return [patch(self._kind, last.checkpoint_id, changes={"expires_at": None}, expect=PRESENT)]

    def expiry(self) -> datetime:
        """When a checkpoint that is retired now may be deleted."""
        return self._store.clock.now() + timedelta(seconds=RETIRED_S)
