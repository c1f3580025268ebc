"""Optimistic transactions: the commit fails where anything read has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import AlreadyExistsError, HoldfastError, OutcomeUnknownError
from holdfast.model.document import Document, schema_of
from holdfast.model.path import join_key, split_key
from holdfast.store.commit import ABSENT, Snapshot, Version, Write, check

if TYPE_CHECKING:
    from holdfast.store.store import Store

D = TypeVar("D", bound=Document)


class Transaction:
    """Records its reads; its commit fails when any of those documents was written meanwhile.

    It reads its own `put`s, and a later one replaces an earlier one of the same document, so that several
    parts can each add to what the commit makes of a document, such as the end of an audit trail.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[tuple[type, str], tuple[type[Document], Snapshot[Any] | None]] = {}
        self._writes: list[Write] = []
        self._puts: dict[tuple[type, str], int] = {}
        self._on_end: list[Callable[[bool], None]] = []

    async def get(self, cls: type[D], *ids: str) -> Snapshot[D] | None:
        schema = schema_of(cls)
        key = join_key(ids, schema.path.parameters)
        place = self._puts.get((cls, key))
        if place is not None and (prepared := self._writes[place].prepared) is not None:
            before = self._read.get((cls, key), (cls, None))[1]
            return Snapshot(schema.document_of(prepared), before.version if before else 0, key)
        found = await self._store.get(cls, *ids)
        self._read[cls, key] = (cls, found)
        return found

    def write(self, *writes: Write) -> None:
        """Add writes to the final commit."""
        for write in writes:
            name = (write.schema.cls, write.key)
            if write.kind != "put" or name not in self._puts:
                self._writes.append(write)
                if write.kind == "put":
                    self._puts[name] = len(self._writes) - 1
            else:
                self._writes[self._puts[name]] = write

    def on_end(self, callback: Callable[[bool], None]) -> None:
        """Have it called once this attempt has ended, with whether it was committed."""
        self._on_end.append(callback)

    def end(self, *, committed: bool) -> None:
        for callback in self._on_end:
            callback(committed)

    async def commit(self) -> None:
        if self._writes:
            await self._store.commit(*(self._guarded(w) for w in self._writes), *self._unwritten())

    def may_retry(self, fault: HoldfastError) -> bool:
        """Whether a retry can help: not for an unknown outcome, nor for a create without a read."""
        if isinstance(fault, OutcomeUnknownError):
            return False
        return bool(self._read) or not isinstance(fault, AlreadyExistsError)

    def _guarded(self, write: Write) -> Write:
        read = self._read.get((write.schema.cls, write.key))
        if read is None or write.expect is not None:
            return write
        expect = ABSENT if read[1] is None else Version(read[1].version)
        return Write(write.kind, write.schema, write.key, expect, write.prepared, write.changes)

    def _unwritten(self) -> list[Write]:
        written = {(w.schema.cls, w.key) for w in self._writes}
        return [
            check(cls, *split_key(key), expect=ABSENT if found is None else found.unchanged)
            for (owner, key), (cls, found) in self._read.items()
            if (owner, key) not in written
        ]
