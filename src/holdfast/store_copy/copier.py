"""The copier: walks that write what differs, until nothing does.

Each commit to the target carries the marker too, at the version this process left it in. So the position is
committed with the documents it counts, and a second copier ends the first one's writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import (
    AlreadyExistsError,
    ConflictError,
    HoldfastError,
    LeaseLostError,
    VersionConflictError,
)
from holdfast.model import Document, schema_of
from holdfast.plural import plural
from holdfast.store import Snapshot, Store, Version, Write, create, put
from holdfast.store.commit import ABSENT, Commit
from holdfast.store.plan import resolve
from holdfast.store_copy.diff import Pair
from holdfast.store_copy.marker import check_target
from holdfast.store_copy.models import Copy, CopyResult, Difference, WalkResult
from holdfast.store_copy.walk import Report, StoreDiff, all_documents, collection_of, count_all

WALKS_MAX: Final = 10
# Within Firestore's limit of one request, with room to spare.
WRITES_MAX: Final = 100
BYTES_MAX: Final = 2_000_000


async def copy_store(
    source: Store,
    target: Store,
    classes: Sequence[type[Document]],
    *,
    name: str,
    final: bool = False,
    walks_max: int = WALKS_MAX,
    report: Report | None = None,
) -> CopyResult:
    """Bring the target in sync with the source, called `name`; call it again after a crash to resume.

    With `final` nobody may write to the source any more: a walk without differences finishes the copy, and
    `ConflictError` says that somebody does write. The target must be migrated and know `Copy`.

    Example: `await copy_store(old, new, [Run], name="sqlite:///runs.db", final=True)`
    """
    copier = Copier(source, target, classes, report=report)
    await copier.begin(name)
    return await copier.run(final=final, walks_max=walks_max)


class Copier:
    def __init__(
        self, source: Store, target: Store, classes: Sequence[type[Document]], *, report: Report | None
    ) -> None:
        self._source, self._target, self._report = source, target, report
        self._classes = [cls for cls in classes if cls is not Copy]
        self._clock = target.clock
        self._copy: Copy
        self._version = 0
        self._writes: list[Write] = []
        self._bytes = 0
        self._last: tuple[type[Document], Pair] | None = None

    async def begin(self, name: str) -> None:
        """Claim the target, or refuse it."""
        marker = await check_target(self._target, self._classes, source=name)
        now = self._clock.now()
        if marker is None:
            self._copy = Copy(source=name, started_at=now, updated_at=now)
            committed = await self._target.commit(create(self._copy))
        else:
            self._copy = marker.doc
            self._copy.runs += 1
            self._copy.updated_at = now
            committed = await self._target.commit(put(self._copy, marker.unchanged))
        self._version = committed.versions[0]

    async def run(self, *, final: bool, walks_max: int) -> CopyResult:
        """Walk until a complete walk finds no difference, `walks_max` times at most."""
        total = sum((await count_all(self._source, self._classes)).values())
        before = (self._copy.written, self._copy.removed)
        walks: list[WalkResult] = []
        in_step = False
        # A walk that copies proves nothing: finishing takes one more.
        walks_max = max(walks_max, 2) if final else walks_max
        while len(walks) < walks_max and not in_step:
            # The snapshot resumes; any later walk must cover everything to prove anything.
            resumed = not walks and self._copy.walk == 1 and bool(self._copy.collection)
            walks.append(await self._walk(total, resumed=resumed))
            in_step = walks[-1].differing == 0 and not resumed
        if final:
            await self._finish(walks[-1], in_step=in_step)
        return CopyResult(
            state=self._copy.state, in_step=in_step, walks=walks, proof=self._copy.proof,
            written=self._copy.written - before[0], removed=self._copy.removed - before[1],
        )  # fmt: skip

    async def _walk(self, total: int, *, resumed: bool) -> WalkResult:
        walk = StoreDiff(
            self._source, self._target, report=self._report, settle=self._settle,
            number=self._copy.walk, total=total,
        )  # fmt: skip
        collection, cursor = (self._copy.collection, self._copy.cursor) if resumed else ("", None)
        result = await walk.run(self._classes, collection=collection, cursor=cursor)
        self._copy.walk += 1
        await self._commit()
        self._copy.collection, self._copy.cursor = "", None
        return result

    async def _finish(self, result: WalkResult, *, in_step: bool) -> None:
        if not in_step:
            differed = plural(result.differing, "document")
            raise ConflictError(
                f"the source still changes ({differed} differed in the last walk):"
                " stop all that writes to it, then run this again"
            )
        self._copy.state, self._copy.finished_at = "finished", self._clock.now()
        self._copy.proof = result.tallies
        await self._commit()

    async def _settle(self, cls: type[Document], pair: Pair, difference: Difference) -> None:
        write = _write(cls, *pair)
        size = 0 if write.prepared is None else len(write.prepared.body)
        if len(self._writes) >= WRITES_MAX or self._bytes + size > BYTES_MAX:
            await self._commit()
        self._writes.append(write)
        self._bytes += size
        self._copy.written += difference.kind != "extra"
        self._copy.removed += difference.kind == "extra"
        self._last = (cls, pair)

    async def _commit(self) -> None:
        self._copy.updated_at = self._clock.now()
        if self._last is not None:
            cls, pair = self._last
            self._copy.collection, self._copy.cursor = collection_of(cls), _cursor(cls, *pair)
        marker = put(self._copy, Version(self._version))
        commit = Commit((marker, *self._writes), restoring=True)
        (outcome,) = await self._target.engine.commit((commit,))
        if isinstance(outcome, VersionConflictError):
            raise LeaseLostError("another `holdfast copy` to this target has taken over") from outcome
        if isinstance(outcome, AlreadyExistsError):
            raise ConflictError(f"another process writes to the target: {outcome.message}") from outcome
        if isinstance(outcome, HoldfastError):
            raise outcome
        self._version = outcome.versions[0]
        self._writes, self._bytes, self._last = [], 0, None


def _write(cls: type[Document], one: Snapshot[Any] | None, other: Snapshot[Any] | None) -> Write:
    """The write that makes the target's side equal to the source's; ids are copied as they are."""
    schema = schema_of(cls)
    if one is None:
        assert other is not None
        return Write("delete", schema, other.key)
    prepared = schema.prepare(one.doc)
    if other is None:
        return Write("create", schema, one.key, ABSENT, prepared)
    return Write("put", schema, one.key, None, prepared)


def _cursor(cls: type[Document], one: Snapshot[Any] | None, other: Snapshot[Any] | None) -> str:
    item = one or other
    assert item is not None
    return resolve(all_documents(cls), tenant=None, privileged=True).cursor_at(item.doc, item.key)
