"""One walk over all documents of both stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import BadCursorError, DecryptionError
from holdfast.model import Document, schema_of
from holdfast.model.path import split_key
from holdfast.store import Query, Store
from holdfast.store_copy.diff import Comparison, Pair, pairs
from holdfast.store_copy.models import Difference, Progress, WalkResult

Report = Callable[[Progress], None]
Settle = Callable[[type[Document], Pair, Difference], Awaitable[None]]
# Documents have up to a mebibyte, and a page of each side is in memory.
PAGE: Final = 100
REPORT_EVERY: Final = 500


def collection_of(cls: type[Document]) -> str:
    return "/".join(schema_of(cls).path.names)


def all_documents(cls: type[Document]) -> Query[Any]:
    """All documents of a collection, of every tenant, in id order."""
    query: Query[Any] = Query(cls).limit(PAGE)
    return query.across_parents() if schema_of(cls).path.nested else query


async def count_all(store: Store, classes: Iterable[type[Document]]) -> dict[str, int]:
    """The number of documents of each collection."""
    return {collection_of(cls): await store.privileged().count(all_documents(cls)) for cls in classes}


async def verify_stores(
    source: Store, target: Store, classes: Sequence[type[Document]], *, report: Report | None = None
) -> WalkResult:
    """Compare everything and change nothing; exact once nobody writes to either.

    Example: `assert (await verify_stores(old, new, [Run])).differing == 0`
    """
    return await StoreDiff(source, target, report=report).run(classes)


class StoreDiff:
    """Compares every document of both stores once; `settle` is called for each difference."""

    def __init__(
        self,
        source: Store,
        target: Store,
        *,
        report: Report | None = None,
        settle: Settle | None = None,
        number: int = 1,
        total: int = 0,
    ) -> None:
        self._source, self._target = source.privileged(), target.privileged()
        self._report, self._settle = report, settle
        self._number, self._total = number, total
        self.result = WalkResult()
        self._last = ""  # the last id of this collection

    async def run(
        self, classes: Sequence[type[Document]], *, collection: str = "", cursor: str | None = None
    ) -> WalkResult:
        """Walk these collections, from the named one and its cursor on."""
        for cls in sorted(classes, key=collection_of):
            name = collection_of(cls)
            if name >= collection:
                await self._collection(cls, name, cursor=cursor if name == collection else None)
        return self.result

    async def _collection(self, cls: type[Document], name: str, *, cursor: str | None) -> None:
        comparison = Comparison(name)
        self._last = ""
        query = all_documents(cls).after(await self._valid_cursor(cls, cursor))
        try:
            async for pair in pairs(self._source.scan(query), self._target.scan(query)):
                await self._record(cls, pair, comparison.compare(pair))
        except msgspec.ValidationError as fault:
            raise DecryptionError(
                f"{name}: one of the {PAGE} documents after {self._last or 'its start'!r} is not as declared "
                f"({fault}); fix or delete it, then run this again"
            ) from None
        self.result.tallies.append(comparison.digest())
        self._report_progress(name)

    async def _record(self, cls: type[Document], pair: Pair, difference: Difference | None) -> None:
        if difference is not None:
            self.result.note(difference)
            if self._settle is not None:
                await self._settle(cls, pair, difference)
        item = pair[0] or pair[1]
        self._last = "" if item is None else "/".join(split_key(item.key))
        self.result.seen += 1
        if self.result.seen % REPORT_EVERY == 0:
            self._report_progress(collection_of(cls))

    async def _valid_cursor(self, cls: type[Document], cursor: str | None) -> str | None:
        """The cursor, or None where it was stored by another version of the declaration."""
        if cursor is None:
            return None
        try:
            await self._source.query(all_documents(cls).limit(1).after(cursor))
        except BadCursorError:
            return None
        return cursor

    def _report_progress(self, collection: str) -> None:
        if self._report is not None:
            result = self.result
            self._report(Progress(
                walk=self._number, collection=collection, seen=result.seen,
                total=max(self._total, result.seen), differing=result.differing,
            ))  # fmt: skip
