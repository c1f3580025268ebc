"""Page statements of repeated queries: written once for a query's shape, then only bound to its values.

The statement is that of `index_scan` for a plan with slots in place of its values, so no rule is repeated.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from holdfast.store.index_choice import QueryShape
from holdfast.store.plan import QueryPlan
from holdfast.store.sql import index_scan
from holdfast.store.sql.table_mapping import TableMapping

_STATEMENTS_MAX: Final = 1_000


class _Slot(NamedTuple):
    """Stands for the value at a position."""

    position: int


# The shape, the limit, and whether the query is of one parent and of one tenant.
_SelectKey = tuple[QueryShape, int, bool, bool]


class SelectCache:
    """The statements that find pages in one table."""

    def __init__(self, mapping: TableMapping) -> None:
        self._mapping, self._bind = mapping, mapping.dialect.bind
        self._statements: dict[_SelectKey, tuple[str, list[Any]]] = {}

    def select(self, plan: QueryPlan) -> tuple[str, list[Any]]:
        """Return the statement that finds the plan's page, and its values."""
        shape, parent, tenant = plan.shape, plan.parent, plan.tenant
        if not shape.plain or plan.after is not None:
            return self._write(plan)
        values = [parent, tenant, *[one for _, (one,) in plan.equals]]
        if None in values[2:]:
            return self._write(plan)  # IS NULL: another text
        key = (shape, plan.limit, parent is not None, tenant is not None)
        statement = self._statements.get(key)
        if statement is None:
            if len(self._statements) >= _STATEMENTS_MAX:
                self._statements.clear()
            statement = self._statements[key] = self._write(_with_slots(plan))
        text, bound = statement
        bind = self._bind
        return text, [bind(values[one.position]) if type(one) is _Slot else one for one in bound]

    def _write(self, plan: QueryPlan) -> tuple[str, list[Any]]:
        mapping = self._mapping
        return index_scan.select(plan, mapping.table, dialect=mapping.dialect, columns=mapping.loaded)


def _with_slots(plan: QueryPlan) -> QueryPlan:
    equals = tuple((column, (_Slot(n),)) for n, (column, _) in enumerate(plan.equals, 2))
    parent: Any = None if plan.parent is None else _Slot(0)
    tenant: Any = None if plan.tenant is None else _Slot(1)
    return msgspec.structs.replace(plan, parent=parent, tenant=tenant, equals=equals)
