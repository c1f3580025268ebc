"""What both SQL engines do alike: they turn plans into statements and rows into results."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from holdfast.clock import from_us, to_us
from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.commit import Snapshot
from holdfast.store.notifier import CommitNotifier, CommitSubscription
from holdfast.store.plan import QueryPlan
from holdfast.store.port import Capabilities
from holdfast.store.sql import index_scan
from holdfast.store.sql.claims import count_due_statement, leased_statement, next_due_statement
from holdfast.store.sql.dialect import Dialect
from holdfast.store.sql.select_cache import SelectCache
from holdfast.store.sql.table_mapping import Row, TableMapping
from holdfast.store.sql.tables import KEY

M = TypeVar("M", bound=TableMapping)
T = TypeVar("T")


class SqlEngine(ABC, Generic[M]):
    """The reads of the port over one method that executes a statement. See `Engine` for the promises."""

    def __init__(
        self,
        catalog: Catalog,
        mappings: Mapping[Schema[Any], M],
        *,
        capabilities: Capabilities,
        notifier: CommitNotifier,
    ) -> None:
        self.catalog, self.capabilities = catalog, capabilities
        self._mappings, self._commits = mappings, notifier
        self._selects = {schema: SelectCache(mapping) for schema, mapping in mappings.items()}

    @abstractmethod
    async def _execute(
        self, statement: tuple[str, list[Any]], read: Callable[[Iterable[Row]], T], *, rows_max: int
    ) -> T:
        """Execute a statement that returns up to so many rows and read its result with `read`."""

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        mapping = self._mappings[plan.schema]
        statement = self._selects[plan.schema].select(plan)
        return await self._execute(statement, mapping.snapshots, rows_max=plan.limit)

    async def select(self, plan: QueryPlan, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
        mapping = self._mappings[plan.schema]
        names = (KEY, *(column.stored for column in columns))
        statement = index_scan.select(plan, mapping.table, dialect=mapping.dialect, columns=names)
        unbind = _unbinder(mapping.dialect, columns, start=1)
        return await self._execute(statement, unbind, rows_max=plan.limit)

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        mapping = self._mappings[plan.schema]
        rows = await self._sums(index_scan.aggregate(plan, mapping.table, dialect=mapping.dialect))
        return index_scan.aggregate_result(plan, rows[0])

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        mapping = self._mappings[plan.schema]
        statement = index_scan.totals(plan, mapping.table, dialect=mapping.dialect, by=by, of=of)
        rows = _unbinder(mapping.dialect, by, start=0)(await self._sums(statement))
        return [(*row[:-1], index_scan.sum_result(row[-1]) or 0) for row in rows]

    async def _sums(self, statement: tuple[str, list[Any]]) -> list[Row]:
        return await self._execute(statement, list, rows_max=sys.maxsize)

    async def next_due(
        self, schema: Schema[Any], tenant: str | None, *, after_us: int | None = None
    ) -> int | None:
        mapping = self._mappings[schema]
        after = None if after_us is None else from_us(after_us)
        rows = await self._execute(next_due_statement(mapping, tenant, after), list, rows_max=1)
        unbind = mapping.dialect.unbind.get("time")
        return None if not rows else to_us(rows[0][0] if unbind is None else unbind(rows[0][0]))

    async def leased(
        self, schema: Schema[Any], owner_prefix: str, *, now_us: int, until_us: int, limit: int
    ) -> list[Snapshot[Any]]:
        mapping = self._mappings[schema]
        statement = leased_statement(
            mapping, owner_prefix, now=from_us(now_us), until=from_us(until_us), limit=limit
        )
        return await self._execute(statement, mapping.snapshots, rows_max=limit)

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        statement = count_due_statement(self._mappings[schema], from_us(now_us), limit)
        # One row, but as much to read as `limit` of them: not in the loop's thread.
        rows = await self._execute(statement, list, rows_max=limit)
        return int(rows[0][0])

    async def undeployed(self, *, confirm: bool = False) -> list[str]:
        return []

    def watch(self, schemas: Sequence[Schema[Any]], *, claims: bool = False) -> CommitSubscription:
        return self._commits.subscribe(schemas, claims=claims)


def _unbinder(
    dialect: Dialect, columns: Sequence[Column], *, start: int
) -> Callable[[Iterable[Row]], list[tuple[Any, ...]]]:
    """Return what makes plain values of rows that have these columns from a position on."""
    unbind = {n: dialect.unbind[c.kind] for n, c in enumerate(columns, start) if c.kind in dialect.unbind}
    if not unbind:
        return lambda rows: list(map(tuple, rows))
    return lambda rows: [
        tuple([unbind[n](v) if n in unbind and v is not None else v for n, v in enumerate(row)])
        for row in rows
    ]
