"""Claims on SQLite: inside the write transaction nobody else can take a document."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import apsw
import msgspec
from msgspec.structs import force_setattr

from holdfast.clock import from_us
from holdfast.store.commit import Snapshot
from holdfast.store.port import ClaimRequest
from holdfast.store.sql.claims import (
    claim_values,
    claimable_rows,
    lane_column,
    tenant_condition,
    uses_lanes,
)
from holdfast.store.sql.dialect import Bound, quote
from holdfast.store.sql.table_mapping import CLAIM_COLUMNS_AT, Row
from holdfast.store.sql.tables import KEY, VERSION
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.sqlite.statements import ROW_ID, SqliteTable
from holdfast.store.sqlite.write_transaction import WriteTransaction

LANES_VISITED_MAX = 10_000
LANES_CHECKED_MAX = 16


def may_find(connection: apsw.Connection, mapping: SqliteTable, request: ClaimRequest) -> bool:
    """Whether a claim from chosen lanes would find something, as far as a short look at them can tell.

    A worker whose busy lanes are full asks for all the others, again and again, and mostly for nothing. To
    walk past more of those than a few would take long for a look.
    """
    if len(request.skip_lanes) > LANES_CHECKED_MAX:
        return True
    sql, due = _due_in_lane(mapping, request, shown="1")
    lanes = list(islice(_lanes(connection, mapping, request), LANES_CHECKED_MAX))
    return len(lanes) == LANES_CHECKED_MAX or any(
        connection.execute(sql, (name, *due, 1)).fetchone() for name in lanes
    )


def claim(transaction: WriteTransaction, request: ClaimRequest) -> list[Snapshot[Any]]:
    """Lease and fence what is due, earliest first."""
    mapping = transaction.mappings[request.schema]
    rows = list((_due_by_lane if uses_lanes(request) else _due)(transaction, mapping, request))
    if not rows:
        return []
    version = transaction.next_version()
    row_ids = msgspec.json.encode([row[mapping.row_id_at] for row in rows]).decode()
    values = [value for _, value in claim_values(mapping, request)]
    until_us = request.now_us + request.lease_us
    transaction.connection.execute(_update_sql(mapping), (until_us, version, *values, row_ids))
    for items in mapping.lists:
        if items.claim_sql:
            transaction.connection.execute(items.claim_sql, (row_ids,))
    transaction.touched.add(request.schema)
    rows.sort(key=lambda row: (row[CLAIM_COLUMNS_AT], row[0]))
    return list(_claimed(mapping, rows, request, version=version))


def _due(transaction: WriteTransaction, mapping: SqliteTable, request: ClaimRequest) -> Iterator[Row]:
    due, bound = quote(mapping.claim_columns[0].stored), Bound(DIALECT)
    sql = (
        f"SELECT {_shown(mapping)} {claimable_rows(mapping, lanes=False)}"
        f" AND {due} <= {bound.add(request.now_us)}"
        f"{tenant_condition(mapping, request.tenant, bound)} ORDER BY {due}, {quote(KEY)} LIMIT ?"
    )
    return transaction.connection.execute(sql, (*bound.values, request.limit))


def _due_by_lane(transaction: WriteTransaction, mapping: SqliteTable, request: ClaimRequest) -> Iterator[Row]:
    """Yield due rows lane by lane from `after_lane` on, once round, at most `per_lane` from each."""
    sql, due = _due_in_lane(mapping, request, shown=_shown(mapping))
    left = request.limit
    for name in _lanes(transaction.connection, mapping, request):
        share = left if request.per_lane is None else min(left, request.per_lane)
        rows = transaction.connection.execute(sql, (name, *due, share)).fetchall()
        yield from rows
        left -= len(rows)
        if left == 0:
            return


def _due_in_lane(mapping: SqliteTable, request: ClaimRequest, *, shown: str) -> tuple[str, list[Any]]:
    """Return the statement that finds a lane's due rows, and what it binds between the lane and the limit."""
    due, lane = quote(mapping.claim_columns[0].stored), quote(lane_column(mapping).stored)
    bound = Bound(DIALECT)
    sql = (
        f"SELECT {shown} {claimable_rows(mapping, lanes=True)} AND {lane} = ?"
        f" AND {due} <= {bound.add(request.now_us)}{tenant_condition(mapping, request.tenant, bound)}"
        f" ORDER BY {due}, {quote(KEY)} LIMIT ?"
    )
    return sql, bound.values


def _lanes(connection: apsw.Connection, mapping: SqliteTable, request: ClaimRequest) -> Iterator[str]:
    low, below = request.lane_prefix, request.lanes_below
    start = max(request.after_lane or "", low)
    if request.only_lanes is not None:
        names = sorted(request.only_lanes - request.skip_lanes)
        yield from [n for n in names if n > start] + [n for n in names if n <= start]
        return
    lane = quote(lane_column(mapping).stored)
    bounds = f"{lane} > ?" + ("" if below is None else f" AND {lane} < ?")
    ends = () if below is None else (below,)
    sql = f"SELECT {lane} {claimable_rows(mapping, lanes=True)} AND {bounds} ORDER BY {lane} LIMIT 1"
    visited, name, wrapped = 0, start, False
    while visited < LANES_VISITED_MAX:
        row = connection.execute(sql, (name, *ends)).fetchone()
        if row is None or (wrapped and row[0] > start):
            if wrapped or start == low:
                return
            name, wrapped = low, True
            continue
        name, visited = row[0], visited + 1
        if name not in request.skip_lanes:
            yield name


def _shown(mapping: SqliteTable) -> str:
    return ", ".join(map(quote, mapping.selected))


def _update_sql(mapping: SqliteTable) -> str:
    due, fence, *others = (quote(c.stored) for c in mapping.claim_columns)
    sets = ", ".join(
        [f"{due} = ?", f"{fence} = {fence} + 1", f"{quote(VERSION)} = ?", *(f"{name} = ?" for name in others)]
    )
    row_ids = "SELECT value FROM json_each(?)"
    return f"UPDATE {quote(mapping.table)} SET {sets} WHERE {ROW_ID} IN ({row_ids})"


def _claimed(
    mapping: SqliteTable, rows: list[Row], request: ClaimRequest, *, version: int
) -> Iterator[Snapshot[Any]]:
    """Yield the documents as the claim left them, without reading them again."""
    (due, _), (fence, _), *others = mapping.overlay
    shared = [(due, from_us(request.now_us + request.lease_us))]
    for (path, convert), (_, value) in zip(others, claim_values(mapping, request), strict=True):
        shared.append((path, convert(value) if convert else value))
    for row in rows:
        document = mapping.decode(row)
        force_setattr(document, fence, row[CLAIM_COLUMNS_AT + 1] + 1)
        for path, value in shared:
            force_setattr(document, path, value)
        yield Snapshot(document, version, row[0])
