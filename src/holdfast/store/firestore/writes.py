"""Commits on Firestore: one read, one write with preconditions, repeated after a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError

from holdfast.errors import AlreadyExistsError, HoldfastError, VersionConflictError
from holdfast.store.commit import Commit, Outcome
from holdfast.store.firestore.client import FirestoreClient, back_off
from holdfast.store.firestore.commit_builder import CommitBuilder
from holdfast.store.firestore.document_names import DocumentNames
from holdfast.store.firestore.faults import (
    CONFLICT_CODES,
    CONFLICTS,
    OK,
    from_status,
    is_transient,
    may_be_applied,
    translate,
    unknown_outcome,
)
from holdfast.store.firestore.key_locks import KeyLocks

ATTEMPTS: Final = 50
SEND_ATTEMPTS: Final = 5
CONCURRENT_MAX: Final = 50
# A request is limited to 10 MiB in production and to 4 MiB by the emulator.
BATCH_BYTES_MAX: Final = 3_000_000
BATCH_WRITES_MAX: Final = 250


class FirestoreWriter:
    def __init__(self, client: FirestoreClient, names: DocumentNames) -> None:
        self._client = client
        self._names = names
        self._locks = KeyLocks()
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Make each commit atomically and by itself; those on one document in the order given."""
        drafts = [CommitBuilder(commit, self._names) for commit in commits]
        for round_ in _rounds(drafts):
            async with self._locks.hold(name for draft in round_ for name in draft.reads):
                await self._settle(round_)
        return [draft.outcome for draft in drafts if draft.outcome is not None]

    async def _settle(self, drafts: list[CommitBuilder]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            await self._attempt(drafts)
            drafts = [draft for draft in drafts if draft.outcome is None]
            if not drafts:
                return
            for draft in drafts:
                draft.read_all()
            # Short: a commit that lost a race and then waits long loses the next ones too, and starves.
            await back_off(attempt, longest_s=0.02)
        for draft in drafts:
            draft.outcome = _conflict(draft)

    async def _attempt(self, drafts: list[CommitBuilder]) -> None:
        try:
            found = await self._client.read([name for draft in drafts for name in draft.reads])
        except HoldfastError as fault:
            for draft in drafts:
                draft.outcome = fault
            return
        for draft in drafts:
            _decide(draft, found)
        ready = [draft for draft in drafts if draft.outcome is None and draft.writes]
        single = [draft for draft in ready if len(draft.writes) == 1] if len(ready) > 1 else []
        sends = [self._send(draft) for draft in ready if not single or len(draft.writes) > 1]
        sends += [self._send_each(batch) for batch in _batches(single)]
        await asyncio.gather(*sends)

    async def _send(self, draft: CommitBuilder, *, unsure: bool = False) -> None:
        """Send one commit, again while the connection is bad: preconditions keep it from applying twice."""
        for attempt in range(1, SEND_ATTEMPTS + 1):
            try:
                async with self._slots:
                    results = await self._client.commit(draft.writes)
            except CONFLICTS as fault:
                draft.outcome = unknown_outcome(str(fault)) if unsure else None
                return
            except GoogleAPICallError as fault:
                unsure = unsure or may_be_applied(fault)
                draft.outcome = unknown_outcome(str(fault)) if unsure else translate(fault)
                if not is_transient(fault):
                    return
            else:
                draft.complete(results)
                return
            await back_off(attempt + 2)

    async def _send_each(self, drafts: list[CommitBuilder]) -> None:
        """Send commits of one write each in one request that makes each by itself."""
        try:
            async with self._slots:
                answers = await self._client.write_each(draft.writes[0] for draft in drafts)
        except GoogleAPICallError as fault:
            # One by one, so that one bad write fails no other.
            unsure = may_be_applied(fault)
            await asyncio.gather(*(self._send(draft, unsure=unsure) for draft in drafts))
            return
        for draft, (code, text, result) in zip(drafts, answers, strict=True):
            if code == OK:
                draft.complete([result])
            elif code not in CONFLICT_CODES:
                draft.outcome = translate(from_status(code, text))


def _decide(draft: CommitBuilder, found: dict[str, Any]) -> None:
    try:
        draft.decide(found)
    except HoldfastError as refusal:
        # The first refused write decides; that may be a create whose id was not read yet.
        draft.outcome = refusal if draft.reads_all else None
        draft.writes = []
        return
    if draft.idle or not draft.writes:
        draft.complete([])


def _rounds(drafts: Iterable[CommitBuilder]) -> Iterator[list[CommitBuilder]]:
    """Yield groups in which no document occurs twice, in order."""
    waiting = list(drafts)
    while waiting:
        taken: set[str] = set()
        round_: list[CommitBuilder] = []
        later: list[CommitBuilder] = []
        for draft in waiting:
            free = taken.isdisjoint(draft.names)
            taken.update(draft.names)
            (round_ if free else later).append(draft)
        yield round_
        waiting = later


def _batches(drafts: list[CommitBuilder]) -> Iterator[list[CommitBuilder]]:
    batch: list[CommitBuilder] = []
    size = 0
    for draft in drafts:
        more = draft.writes[0].ByteSize()
        if batch and (len(batch) == BATCH_WRITES_MAX or size + more > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(draft)
        size += more
    if batch:
        yield batch


def _conflict(draft: CommitBuilder) -> HoldfastError:
    label = ", ".join(sorted({write.schema.name for write in draft.commit.writes}))
    if all(write.kind == "create" for write in draft.commit.writes):
        return AlreadyExistsError(f"{label}: the id was taken and deleted again at every attempt")
    return VersionConflictError(
        f"{label}: others wrote in between at each of {ATTEMPTS} attempts; retry later"
    )
