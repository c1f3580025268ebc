"""Taking due documents: one statement that locks, leases and fences; what others lock is passed by."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.clock import from_us
from holdfast.model.sort_key import ordered
from holdfast.store.port import ClaimRequest
from holdfast.store.postgres.dialect import DIALECT
from holdfast.store.postgres.statement import SEQUENCE
from holdfast.store.postgres.table_mapping import PostgresListIndexTable, PostgresTableMapping
from holdfast.store.sql.dialect import Bound, quote
from holdfast.store.sql.tables import KEY, VERSION, claim_index, claimable


def claim_statement(mapping: PostgresTableMapping, request: ClaimRequest) -> tuple[str, list[Any]]:
    """The statement; its rows are those the shelf selects, then when each was due."""
    bound = Bound(DIALECT)
    now = from_us(request.now_us)
    picked = _picked(mapping, request, bound, bound.add(now))
    sets = _sets(mapping, request, bound, until=bound.add(now + timedelta(microseconds=request.lease_us)))
    shown = ", ".join(f"t.{quote(name)}" for name in mapping.selected)
    parts = [
        f"picked AS MATERIALIZED ({picked})",
        f"taken AS (UPDATE {quote(mapping.table)} AS t SET {sets} FROM picked AS p"
        f" WHERE t.{quote(KEY)} = p.k RETURNING {shown}, p.was)",
        *(f"i{n} AS ({_carry(items)})" for n, items in enumerate(mapping.lists) if items.claim_columns),
    ]
    return f"WITH {', '.join(parts)} SELECT * FROM taken", bound.values


def held_statement(mapping: PostgresTableMapping, request: ClaimRequest) -> tuple[str, list[Any]] | None:
    """Finds what this very claim has taken, by its owner and its end, should its answer have been lost; None
    where a lease does not say whose it is. Its rows are as those of the claim."""
    claim = mapping.schema.claim
    assert claim is not None
    if not claim.owner or not request.owner:
        return None
    bound, due, owner = Bound(DIALECT), mapping.claim_columns[0], mapping.claim_columns[2]
    until = bound.add(from_us(request.now_us + request.lease_us))
    mark = bound.add(ordered(request.owner) if owner.kind == "open" else request.owner)
    shown = ", ".join(map(quote, mapping.selected))
    where = f"{_claimable(mapping, lanes=False)} AND {quote(due.stored)} = {until}"
    text = f"SELECT {shown}, {quote(due.stored)} AS was FROM {quote(mapping.table)} WHERE {where}"
    return f"{text} AND {quote(owner.stored)} = {mark}", bound.values


def next_due_statement(mapping: PostgresTableMapping, tenant: str | None) -> tuple[str, list[Any]]:
    """The statement that finds when the earliest document is due."""
    bound = Bound(DIALECT)
    due = quote(mapping.claim_columns[0].stored)
    mine = ""
    if tenant is not None and mapping.schema.tenant is not None:
        mine = f" AND {quote(mapping.schema.tenant.stored)} = {bound.add(tenant)}"
    where = f"{_claimable(mapping, lanes=False)}{mine}"
    text = f"SELECT {due} FROM {quote(mapping.table)} WHERE {where} ORDER BY {due} LIMIT 1"
    return text, bound.values


def count_due_statement(mapping: PostgresTableMapping) -> str:
    """The statement that counts what is due; takes the time and the most to count."""
    due = quote(mapping.claim_columns[0].stored)
    where = f"{_claimable(mapping, lanes=False)} AND {due} <= $1"
    found = f"SELECT 1 FROM {quote(mapping.table)} WHERE {where} LIMIT $2"
    return f"SELECT count(*) FROM ({found}) AS found"


def _sets(mapping: PostgresTableMapping, request: ClaimRequest, bound: Bound, *, until: str) -> str:
    claim = mapping.schema.claim
    assert claim is not None
    due, fence, *others = mapping.claim_columns
    marks = ([request.owner] if claim.owner else []) + ([claim.state[1]] if claim.state else [])
    sets = [f"{quote(due.stored)} = {until}", f"{quote(fence.stored)} = t.{quote(fence.stored)} + 1"]
    for column, mark in zip(others, marks, strict=True):
        value = ordered(mark) if column.kind == "open" else mark
        sets.append(f"{quote(column.stored)} = {bound.add(value)}")
    return ", ".join([*sets, f"{quote(VERSION)} = nextval('{SEQUENCE}')"])


def _carry(items: PostgresListIndexTable) -> str:
    """Rows of a list's table repeat claimed columns, so a claim writes them there too."""
    sets = ", ".join(f"{quote(c.stored)} = taken.{quote(c.stored)}" for c in items.claim_columns)
    return f"UPDATE {quote(items.table)} AS i SET {sets} FROM taken WHERE i.{quote(KEY)} = taken.{quote(KEY)}"


def _picked(mapping: PostgresTableMapping, request: ClaimRequest, bound: Bound, now: str) -> str:
    due = quote(mapping.claim_columns[0].stored)
    mine = ""
    if request.tenant is not None and mapping.schema.tenant is not None:
        mine = f" AND {quote(mapping.schema.tenant.stored)} = {bound.add(request.tenant)}"
    lanes = request.per_lane is not None or request.only_lanes is not None or bool(request.skip_lanes)
    where = f"{_claimable(mapping, lanes=lanes)} AND {due} <= {now}{mine}"
    rows = f"SELECT {quote(KEY)} AS k, {due} AS was FROM {quote(mapping.table)} WHERE {where}"
    order = f"ORDER BY {due}, {quote(KEY)}"
    if not lanes:
        return f"{rows} {order} LIMIT {request.limit} FOR UPDATE SKIP LOCKED"
    return _by_lane(mapping, request, bound, rows=rows, order=order)


def _by_lane(
    mapping: PostgresTableMapping, request: ClaimRequest, bound: Bound, *, rows: str, order: str
) -> str:
    """Some of each lane: lanes are asked in turn until the limit is reached."""
    lane = quote(_lane(mapping))
    share = request.limit if request.per_lane is None else min(request.per_lane, request.limit)
    lanes = _lanes(mapping, request, bound)
    each = f"{rows} AND {lane} = l.lane {order} LIMIT {share} FOR UPDATE SKIP LOCKED"
    return f"SELECT c.k, c.was FROM ({lanes}) AS l CROSS JOIN LATERAL ({each}) AS c LIMIT {request.limit}"


def _lanes(mapping: PostgresTableMapping, request: ClaimRequest, bound: Bound) -> str:
    after = request.after_lane
    if request.only_lanes is not None:
        names = sorted(request.only_lanes - request.skip_lanes, key=str.encode)
        if after is not None:
            names.sort(key=lambda name: name.encode() <= after.encode())
        return f"SELECT lane FROM unnest({bound.add(names)}::text[]) AS lane"
    if after is None:
        return _walk(mapping, request, bound, within="true")
    edge, lane = bound.add(after), quote(_lane(mapping))
    ahead = _walk(mapping, request, bound, within=f"{lane} > {edge}")
    return f"{ahead} UNION ALL {_walk(mapping, request, bound, within=f'{lane} <= {edge}')}"


def _walk(mapping: PostgresTableMapping, request: ClaimRequest, bound: Bound, *, within: str) -> str:
    """Lane after lane, each found by one look into the index, however many documents it holds."""
    lane, due = quote(_lane(mapping)), quote(mapping.claim_columns[0].stored)
    claimable_rows = f"{_claimable(mapping, lanes=True)} AND {within}"
    first = f"SELECT {lane} AS lane FROM {quote(mapping.table)} WHERE {claimable_rows}"
    order = f"ORDER BY {lane}, {due}, {quote(KEY)} LIMIT 1"
    rest = f"SELECT n.lane FROM w CROSS JOIN LATERAL ({first} AND {lane} > w.lane {order}) AS n"
    skipped = f"{bound.add(sorted(request.skip_lanes))}::text[]"
    return (
        f"(WITH RECURSIVE w AS (({first} {order}) UNION ALL {rest})"
        f" SELECT w.lane FROM w WHERE w.lane <> ALL({skipped}))"
    )


def _claimable(mapping: PostgresTableMapping, *, lanes: bool) -> str:
    return claimable(
        quote(mapping.claim_columns[0].stored), claim_index(mapping.table, DIALECT, lanes=lanes), DIALECT
    )


def _lane(mapping: PostgresTableMapping) -> str:
    claim = mapping.schema.claim
    assert claim is not None
    assert claim.lane is not None
    column = mapping.schema.column(claim.lane)
    assert column is not None
    return column.stored
