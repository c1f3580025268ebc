"""Checkpoints of audit trails, outside the database: what a trail held at a time can't be taken back.

An administrator of the database can put an earlier state back whole, or delete a trail with its head; nothing
that is left in the database shows it. A checkpoint elsewhere does: a file in the home folder, the log, and a
URL if one is configured.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import structlog

from holdfast.errors import ConfigError, RetryLaterError
from holdfast.kit.audit.models import AuditCheckpoint, AuditHeadFields, AuditModels
from holdfast.kit.audit.trail import AuditFactory
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.net.port import OutgoingRequest, Sender, SendFailure
from holdfast.private_files import make_folder
from holdfast.store import Query, Store

FILE: Final = "audit-checkpoints.json"
BETWEEN_S: Final = 600.0
PAGE: Final = 500
SEND_S: Final = 30.0
RESPONSE_BYTES_MAX: Final = 65_536
log = structlog.get_logger("holdfast.audit")
TrailKey: TypeAlias = tuple[str, str]
Publish: TypeAlias = Callable[[Sequence[AuditCheckpoint]], Awaitable[None]]


class CheckpointFile:
    """The newest checkpoint of each trail and tenant, in one file, replaced whole.

    Example: `CheckpointFile(home / FILE).read().get(("holdfast", "acme"))`
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[TrailKey, AuditCheckpoint]:
        """Every checkpoint; ConfigError for a file that can't be read."""
        try:
            stored = msgspec.json.decode(self.path.read_bytes(), type=list[AuditCheckpoint])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as fault:
            raise ConfigError(
                f"{self.path} can't be read: {fault}; restore it from a backup, or delete it to start again"
            ) from None
        return {(one.trail, one.tenant_id): one for one in stored}

    def write(self, checkpoints: Iterable[AuditCheckpoint]) -> None:
        """Replace the file atomically and durably, readable by its owner alone."""
        make_folder(self.path.parent)
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(list(checkpoints)), indent=1))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


class CheckpointRecorder:
    """Records a checkpoint of every trail that grew, every ten minutes; several processes may run it.

    A trail that does not continue its checkpoint is logged as an error and keeps the checkpoint it has.

    Example: `await CheckpointRecorder(store, trails, audits=runtime.audit, file=file).run(stop)`
    """

    def __init__(
        self,
        store: Store,
        trails: Mapping[str, AuditModels],
        *,
        audits: AuditFactory,
        file: CheckpointFile,
        publish: Publish | None = None,
    ) -> None:
        self._store, self._clock = store.privileged(), store.clock
        self._trails, self._audits, self._file, self._publish = trails, audits, file, publish
        self._unpublished: dict[TrailKey, AuditCheckpoint] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set."""
        while not stop.is_set():
            await self.record()
            await wait_for_wake(self._clock, BETWEEN_S, stop=stop)

    async def record(self) -> list[AuditCheckpoint]:
        """Record once; return the new checkpoints."""
        stored = await asyncio.to_thread(self._file.read)
        fresh: dict[TrailKey, AuditCheckpoint] = {}
        for trail, models in self._trails.items():
            async for snapshot in self._store.scan(Query(models.head).limit(PAGE)):
                one = self._checkpoint(trail, snapshot.doc)
                key = (trail, one.tenant_id)
                if await self._continues(one, stored.get(key), models):
                    fresh[key] = one
        if fresh:
            await asyncio.to_thread(self._file.write, (stored | fresh).values())
            for one in fresh.values():
                log.info("audit checkpoint", **msgspec.to_builtins(one))
        await self._send(fresh)
        return list(fresh.values())

    def _checkpoint(self, trail: str, head: AuditHeadFields) -> AuditCheckpoint:
        return AuditCheckpoint(
            trail=trail,
            tenant_id=head.tenant_id,
            sequence=head.sequence,
            hash=head.hash,
            at=self._clock.now(),
        )

    async def _continues(
        self, one: AuditCheckpoint, before: AuditCheckpoint | None, models: AuditModels
    ) -> bool:
        """Whether there is something new to record, and it follows what was recorded."""
        if before is not None and (before.sequence, before.hash) == (one.sequence, one.hash):
            return False
        fault = await self._audits(one.tenant_id, models=models).check(before)
        if fault is not None:
            log.error("audit trail is not sound", trail=one.trail, tenant=one.tenant_id, error=fault.message)
        return fault is None

    async def _send(self, fresh: Mapping[TrailKey, AuditCheckpoint]) -> None:
        self._unpublished |= fresh
        if self._publish is None or not self._unpublished:
            return
        try:
            await self._publish(list(self._unpublished.values()))
        except RetryLaterError as fault:
            log.warning("audit checkpoints not sent, will be tried again", error=fault.message)
            return
        self._unpublished.clear()


def publish_to(url: str, sender: Sender) -> Publish:
    """Send checkpoints to a URL, as a JSON list; RetryLaterError where nobody took them."""

    async def publish(checkpoints: Sequence[AuditCheckpoint]) -> None:
        headers, body = (("content-type", "application/json"),), msgspec.json.encode(checkpoints)
        request = OutgoingRequest("POST", url, headers, body, SEND_S, RESPONSE_BYTES_MAX)
        try:
            response = await sender.send(request)
        except SendFailure as fault:
            raise RetryLaterError(fault.message, after_s=BETWEEN_S) from None
        if not 200 <= response.status < 300:
            raise RetryLaterError(f"the receiver answered {response.status}", after_s=BETWEEN_S)

    return publish
