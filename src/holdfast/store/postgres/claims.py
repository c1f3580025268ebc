"""Claims on PostgreSQL: one statement locks, leases and fences; rows others lock are skipped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.clock import from_us
from holdfast.store.port import ClaimRequest
from holdfast.store.postgres.dialect import DIALECT
from holdfast.store.postgres.statement import SEQUENCE, PostgresListTable, PostgresTable
from holdfast.store.sql.claims import (
    claim_values,
    claimable_rows,
    lane_column,
    tenant_condition,
    uses_lanes,
)
from holdfast.store.sql.dialect import Bound, quote
from holdfast.store.sql.tables import KEY, VERSION


def claim_statement(mapping: PostgresTable, request: ClaimRequest) -> tuple[str, list[Any]]:
    """Return the claim's statement; a row has the selected columns, then when it was due."""
    bound = Bound(DIALECT)
    now = from_us(request.now_us)
    picked = _picked(mapping, request, bound, bound.add(now))
    sets = _sets(mapping, request, bound, until=bound.add(now + timedelta(microseconds=request.lease_us)))
    shown = ", ".join(f"t.{quote(name)}" for name in mapping.selected)
    parts = [
        f"picked AS MATERIALIZED ({picked})",
        f"taken AS (UPDATE {quote(mapping.table)} AS t SET {sets} FROM picked AS p"
        f" WHERE t.{quote(KEY)} = p.k RETURNING {shown}, p.was)",
        *(f"i{n} AS ({_claim_items(items)})" for n, items in enumerate(mapping.lists) if items.claim_columns),
    ]
    return f"WITH {', '.join(parts)} SELECT * FROM taken", bound.values


def unconfirmed_statement(mapping: PostgresTable, request: ClaimRequest) -> tuple[str, list[Any]] | None:
    """Return the statement that finds what this very claim has leased, in case its response was lost.

    Its rows are as those of the claim; None where a lease does not name its owner.
    """
    claim = mapping.schema.claim
    assert claim is not None
    if not claim.owner or not request.owner:
        return None
    bound, due = Bound(DIALECT), quote(mapping.claim_columns[0].stored)
    owner, value = claim_values(mapping, request)[0]
    until = bound.add(from_us(request.now_us + request.lease_us))
    shown = ", ".join(map(quote, mapping.selected))
    rows = f"{claimable_rows(mapping, lanes=False)} AND {due} = {until}"
    return f"SELECT {shown}, {due} AS was {rows} AND {quote(owner.stored)} = {bound.add(value)}", bound.values


def _sets(mapping: PostgresTable, request: ClaimRequest, bound: Bound, *, until: str) -> str:
    due, fence = (quote(column.stored) for column in mapping.claim_columns[:2])
    others = [f"{quote(c.stored)} = {bound.add(value)}" for c, value in claim_values(mapping, request)]
    version = f"{quote(VERSION)} = nextval('{SEQUENCE}')"
    return ", ".join([f"{due} = {until}", f"{fence} = t.{fence} + 1", *others, version])


def _claim_items(items: PostgresListTable) -> str:
    """Return the update of a list's table, whose rows repeat claimed columns."""
    sets = ", ".join(f"{quote(c.stored)} = taken.{quote(c.stored)}" for c in items.claim_columns)
    return f"UPDATE {quote(items.table)} AS i SET {sets} FROM taken WHERE i.{quote(KEY)} = taken.{quote(KEY)}"


def _picked(mapping: PostgresTable, request: ClaimRequest, bound: Bound, now: str) -> str:
    due, lanes = quote(mapping.claim_columns[0].stored), uses_lanes(request)
    where = f"{due} <= {now}{tenant_condition(mapping, request.tenant, bound)}"
    rows = f"SELECT {quote(KEY)} AS k, {due} AS was {claimable_rows(mapping, lanes=lanes)} AND {where}"
    order = f"ORDER BY {due}, {quote(KEY)}"
    if not lanes:
        return f"{rows} {order} LIMIT {request.limit} FOR UPDATE SKIP LOCKED"
    return _by_lane(mapping, request, bound, rows=rows, order=order)


def _by_lane(mapping: PostgresTable, request: ClaimRequest, bound: Bound, *, rows: str, order: str) -> str:
    """Pick some rows of each lane, lane by lane until the limit is reached."""
    lane = quote(lane_column(mapping).stored)
    share = request.limit if request.per_lane is None else min(request.per_lane, request.limit)
    lanes = _lanes(mapping, request, bound)
    each = f"{rows} AND {lane} = l.lane {order} LIMIT {share} FOR UPDATE SKIP LOCKED"
    return f"SELECT c.k, c.was FROM ({lanes}) AS l CROSS JOIN LATERAL ({each}) AS c LIMIT {request.limit}"


def _lanes(mapping: PostgresTable, request: ClaimRequest, bound: Bound) -> str:
    after = request.after_lane
    if request.only_lanes is not None:
        names = sorted(request.only_lanes - request.skip_lanes, key=str.encode)
        if after is not None:
            names.sort(key=lambda name: name.encode() <= after.encode())
        return f"SELECT lane FROM unnest({bound.add(names)}::text[]) AS lane"
    lane, within = quote(lane_column(mapping).stored), "true"
    if request.lane_prefix:
        low, below = bound.add(request.lane_prefix), bound.add(request.lanes_below)
        within = f"{lane} > {low} AND {lane} < {below}"
    if after is None:
        return _lanes_within(mapping, request, bound, within=within)
    edge = bound.add(after)
    ahead = _lanes_within(mapping, request, bound, within=f"{within} AND {lane} > {edge}")
    behind = _lanes_within(mapping, request, bound, within=f"{within} AND {lane} <= {edge}")
    return f"{ahead} UNION ALL {behind}"


def _lanes_within(mapping: PostgresTable, request: ClaimRequest, bound: Bound, *, within: str) -> str:
    """Find lane after lane by one index lookup each, however many documents a lane has."""
    lane, due = quote(lane_column(mapping).stored), quote(mapping.claim_columns[0].stored)
    first = f"SELECT {lane} AS lane {claimable_rows(mapping, lanes=True)} AND {within}"
    order = f"ORDER BY {lane}, {due}, {quote(KEY)} LIMIT 1"
    rest = f"SELECT n.lane FROM w CROSS JOIN LATERAL ({first} AND {lane} > w.lane {order}) AS n"
    skipped = f"{bound.add(sorted(request.skip_lanes))}::text[]"
    return (
        f"(WITH RECURSIVE w AS (({first} {order}) UNION ALL {rest})"
        f" SELECT w.lane FROM w WHERE w.lane <> ALL({skipped}))"
    )
