"""The parts of a claim's statements that both SQL engines share."""

from __future__ import annotations

from typing import Any

from holdfast.model.columns import Column
from holdfast.model.sort_key import ordered
from holdfast.store.port import ClaimRequest
from holdfast.store.sql.dialect import Bound, quote
from holdfast.store.sql.table_mapping import TableMapping
from holdfast.store.sql.tables import KEY, claim_index, claimable


def uses_lanes(request: ClaimRequest) -> bool:
    chosen = request.only_lanes is not None or bool(request.skip_lanes or request.lane_prefix)
    return request.per_lane is not None or chosen


def lane_column(mapping: TableMapping) -> Column:
    claim = mapping.schema.claim
    assert claim is not None
    assert claim.lane is not None
    column = mapping.schema.column(claim.lane)
    assert column is not None
    return column


def claimable_rows(mapping: TableMapping, *, lanes: bool) -> str:
    """Return `FROM … WHERE …` over the claim's partial index, by due time or by lane."""
    dialect, index = mapping.dialect, claim_index(mapping.table, mapping.dialect, lanes=lanes)
    due = quote(mapping.claim_columns[0].stored)
    return f"FROM {quote(mapping.table)}{dialect.use_index(index)} WHERE {claimable(due, index, dialect)}"


def tenant_condition(mapping: TableMapping, tenant: str | None, bound: Bound) -> str:
    if tenant is None or mapping.schema.tenant is None:
        return ""
    return f" AND {quote(mapping.schema.tenant.stored)} = {bound.add(tenant)}"


def claim_values(mapping: TableMapping, request: ClaimRequest) -> list[tuple[Column, Any]]:
    """Return the columns that a claim sets beside due and fence, with their stored values."""
    claim = mapping.schema.claim
    assert claim is not None
    values = ([request.owner] if claim.owner else []) + ([claim.state[1]] if claim.state else [])
    columns = mapping.claim_columns[2:]
    return [
        (column, ordered(value) if column.kind == "open" else value)
        for column, value in zip(columns, values, strict=True)
    ]


def next_due_statement(mapping: TableMapping, tenant: str | None, after: Any = None) -> tuple[str, list[Any]]:
    """Return the statement that finds when the earliest document is due, among those due after a time."""
    bound, due = Bound(mapping.dialect), quote(mapping.claim_columns[0].stored)
    rows = f"{claimable_rows(mapping, lanes=False)}{tenant_condition(mapping, tenant, bound)}"
    if after is not None:
        rows += f" AND {due} > {bound.add(after)}"
    return f"SELECT {due} {rows} ORDER BY {due} LIMIT 1", bound.values


def leased_statement(
    mapping: TableMapping, owner_prefix: str, *, now: Any, until: Any, limit: int
) -> tuple[str, list[Any]]:
    """Return the statement that finds claimed documents by the prefix of their owner."""
    claim, bound = mapping.schema.claim, Bound(mapping.dialect)
    assert claim is not None
    assert claim.owner is not None
    due, _, owner, *state = (quote(column.stored) for column in mapping.claim_columns)
    after_prefix = f"{owner_prefix[:-1]}{chr(ord(owner_prefix[-1]) + 1)}"
    conditions = [
        f"{due} > {bound.add(now)}", f"{due} <= {bound.add(until)}",
        f"{owner} >= {bound.add(owner_prefix)}", f"{owner} < {bound.add(after_prefix)}",
        *(f"{name} = {bound.add(claim.state[1])}" for name in state if claim.state),
    ]  # fmt: skip
    rows = f"{claimable_rows(mapping, lanes=False)} AND {' AND '.join(conditions)}"
    shown = ", ".join(map(quote, mapping.selected))
    return f"SELECT {shown} {rows} ORDER BY {due}, {quote(KEY)} LIMIT {bound.add(limit)}", bound.values


def count_due_statement(mapping: TableMapping, now: Any, limit: int) -> tuple[str, list[Any]]:
    """Return the statement that counts what is due, up to a limit."""
    bound, due = Bound(mapping.dialect), quote(mapping.claim_columns[0].stored)
    rows = f"{claimable_rows(mapping, lanes=False)} AND {due} <= {bound.add(now)} LIMIT {bound.add(limit)}"
    return f"SELECT count(*) FROM (SELECT 1 {rows}) AS due", bound.values
