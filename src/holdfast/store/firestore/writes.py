"""Committing: one read for all that must be seen, one guarded write, again when somebody came between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from google.api_core.exceptions import GoogleAPICallError

from holdfast.errors import (
    AlreadyExistsError,
    HoldfastError,
    VersionConflictError,
)
from holdfast.store.commit import Commit, Outcome
from holdfast.store.firestore.client import FirestoreClient, back_off
from holdfast.store.firestore.commit_builder import CommitBuilder
from holdfast.store.firestore.document_names import DocumentNames
from holdfast.store.firestore.faults import (
    CONFLICT_CODES,
    CONFLICTS,
    OK,
    from_status,
    maybe_made,
    passing,
    translate,
    unknown_outcome,
)
from holdfast.store.firestore.key_locks import KeyLocks

ATTEMPTS: Final = 50
SEND_ATTEMPTS: Final = 5
AT_ONCE_MAX: Final = 50
# A request is limited to 10 MiB in production and to 4 MiB by the emulator.
BATCH_BYTES_MAX: Final = 3_000_000
BATCH_WRITES_MAX: Final = 250


class FirestoreWriter:
    def __init__(self, client: FirestoreClient, places: DocumentNames) -> None:
        self._client = client
        self._places = places
        self._turns = KeyLocks()
        self._room = asyncio.Semaphore(AT_ONCE_MAX)

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Each commit whole or not at all, each by itself; those on one document in the order given."""
        drafts = [CommitBuilder(commit, self._places) for commit in commits]
        for wave in _waves(drafts):
            async with self._turns.hold(name for draft in wave for name in draft.reads):
                await self._settle(wave)
        return [draft.outcome for draft in drafts if draft.outcome is not None]

    async def _settle(self, drafts: list[CommitBuilder]) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            await self._attempt(drafts)
            drafts = [draft for draft in drafts if draft.outcome is None]
            if not drafts:
                return
            for draft in drafts:
                draft.read_all()
            # Short: whoever lost a race and then waits long loses the next ones too, and starves.
            await back_off(attempt, longest_s=0.02)
        for draft in drafts:
            draft.outcome = _worn_out(draft)

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
        """One atomic commit, sent again while the link is bad: guarded writes can't land twice."""
        for attempt in range(1, SEND_ATTEMPTS + 1):
            try:
                async with self._room:
                    results = await self._client.commit(draft.writes)
            except CONFLICTS as fault:
                draft.outcome = unknown_outcome(str(fault)) if unsure else None
                return
            except GoogleAPICallError as fault:
                unsure = unsure or maybe_made(fault)
                draft.outcome = unknown_outcome(str(fault)) if unsure else translate(fault)
                if not passing(fault):
                    return
            else:
                draft.landed(results)
                return
            await back_off(attempt + 2)

    async def _send_each(self, drafts: list[CommitBuilder]) -> None:
        """Commits of one write each, in one request that makes each by itself."""
        try:
            async with self._room:
                answers = await self._client.write_each(draft.writes[0] for draft in drafts)
        except GoogleAPICallError as fault:
            # One by one, so that one bad write spoils no other.
            unsure = maybe_made(fault)
            await asyncio.gather(*(self._send(draft, unsure=unsure) for draft in drafts))
            return
        for draft, (code, text, result) in zip(drafts, answers, strict=True):
            if code == OK:
                draft.landed([result])
            elif code not in CONFLICT_CODES:
                draft.outcome = translate(from_status(code, text))


def _decide(draft: CommitBuilder, found: dict[str, Any]) -> None:
    try:
        draft.decide(found)
    except HoldfastError as refusal:
        # The first write that can't be is the answer; it may be a create, whose id was not looked up yet.
        draft.outcome = refusal if draft.saw_all else None
        draft.writes = []
        return
    if draft.idle or not draft.writes:
        draft.landed([])


def _waves(drafts: Iterable[CommitBuilder]) -> Iterator[list[CommitBuilder]]:
    """Drafts in turn such that no document is in a wave twice."""
    waiting = list(drafts)
    while waiting:
        taken: set[str] = set()
        wave: list[CommitBuilder] = []
        later: list[CommitBuilder] = []
        for draft in waiting:
            free = taken.isdisjoint(draft.names)
            taken.update(draft.names)
            (wave if free else later).append(draft)
        yield wave
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


def _worn_out(draft: CommitBuilder) -> HoldfastError:
    label = ", ".join(sorted({write.schema.name for write in draft.commit.writes}))
    if all(write.kind == "create" for write in draft.commit.writes):
        return AlreadyExistsError(f"{label}: the id was taken and freed again at every try")
    return VersionConflictError(f"{label}: others wrote in between at every one of {ATTEMPTS} tries")
