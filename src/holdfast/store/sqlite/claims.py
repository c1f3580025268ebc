"""Taking due documents: inside the write transaction nobody can take them twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from holdfast.clock import from_us
from holdfast.model.sort_key import ordered
from holdfast.store.commit import Snapshot
from holdfast.store.port import ClaimRequest
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import KEY, VERSION, claim_index
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.sqlite.table_mapping import CLAIM_COLUMNS_AT, ROW, ROW_AT, Row, SqliteTableMapping
from holdfast.store.sqlite.write_transaction import WriteTransaction

LANES_VISITED_MAX = 10_000


def claim(transaction: WriteTransaction, request: ClaimRequest) -> list[Snapshot[Any]]:
    """Lease and fence what is due, earliest first."""
    mapping = transaction.mappings[request.schema]
    rows = (
        list(_by_lane(transaction, mapping, request))
        if _by_lanes(request)
        else _earliest(transaction, mapping, request)
    )
    if not rows:
        return []
    version = transaction.next_version()
    numbers = msgspec.json.encode([row[ROW_AT] for row in rows]).decode()
    until = request.now_us + request.lease_us
    transaction.connection.execute(_update_sql(mapping), (until, version, *_marks(mapping, request), numbers))
    for items in mapping.lists:
        if items.carry_sql:
            transaction.connection.execute(items.carry_sql, (numbers,))
    transaction.touched.add(request.schema)
    rows.sort(key=lambda row: (row[CLAIM_COLUMNS_AT], row[0]))
    return list(_taken(mapping, rows, request, version=version))


def next_due(mapping: SqliteTableMapping, tenant: str | None) -> tuple[str, tuple[str, ...]]:
    """The statement that finds when the earliest document is due."""
    due = quote(mapping.claim_columns[0].stored)
    index = quote(claim_index(mapping.table, DIALECT, lanes=False))
    mine = ""
    if tenant is not None and mapping.schema.tenant is not None:
        mine = f" AND {quote(mapping.schema.tenant.stored)} = ?"
    sql = f"SELECT {due} FROM {quote(mapping.table)} INDEXED BY {index} WHERE {due} IS NOT NULL{mine}"
    return f"{sql} ORDER BY {due} LIMIT 1", (tenant,) if mine and tenant is not None else ()


def count_due(mapping: SqliteTableMapping) -> str:
    """The statement that counts what is due; takes the time and the most to count."""
    due = quote(mapping.claim_columns[0].stored)
    index = quote(claim_index(mapping.table, DIALECT, lanes=False))
    found = f"SELECT 1 FROM {quote(mapping.table)} INDEXED BY {index} WHERE {due} <= ? LIMIT ?"
    return f"SELECT count(*) FROM ({found})"


def _by_lanes(request: ClaimRequest) -> bool:
    return request.per_lane is not None or request.only_lanes is not None or bool(request.skip_lanes)


def _earliest(transaction: WriteTransaction, mapping: SqliteTableMapping, request: ClaimRequest) -> list[Row]:
    due = quote(mapping.claim_columns[0].stored)
    where, values = _mine(mapping, request)
    index = claim_index(mapping.table, DIALECT, lanes=False)
    sql = (
        f"{_select(mapping)} INDEXED BY {quote(index)} WHERE {due} <= ?{where}"
        f" ORDER BY {due}, {quote(KEY)} LIMIT ?"
    )
    return transaction.connection.execute(sql, (request.now_us, *values, request.limit)).fetchall()


def _by_lane(
    transaction: WriteTransaction, mapping: SqliteTableMapping, request: ClaimRequest
) -> Iterator[Row]:
    """Lanes in turn from `after_lane` on, once round, at most `per_lane` from each."""
    due, lane = quote(mapping.claim_columns[0].stored), quote(_lane(mapping))
    where, values = _mine(mapping, request)
    index = quote(claim_index(mapping.table, DIALECT, lanes=True))
    sql = (
        f"{_select(mapping)} INDEXED BY {index} WHERE {lane} = ? AND {due} <= ?{where}"
        f" ORDER BY {due}, {quote(KEY)} LIMIT ?"
    )
    left = request.limit
    for name in _lanes(transaction, mapping, request):
        take = left if request.per_lane is None else min(left, request.per_lane)
        rows = transaction.connection.execute(sql, (name, request.now_us, *values, take)).fetchall()
        yield from rows
        left -= len(rows)
        if left == 0:
            return


def _lanes(
    transaction: WriteTransaction, mapping: SqliteTableMapping, request: ClaimRequest
) -> Iterator[str]:
    start = request.after_lane or ""
    if request.only_lanes is not None:
        names = sorted(request.only_lanes - request.skip_lanes)
        yield from [n for n in names if n > start] + [n for n in names if n <= start]
        return
    lane, due = quote(_lane(mapping)), quote(mapping.claim_columns[0].stored)
    index = quote(claim_index(mapping.table, DIALECT, lanes=True))
    sql = (
        f"SELECT {lane} FROM {quote(mapping.table)} INDEXED BY {index}"
        f" WHERE {lane} > ? AND {due} IS NOT NULL ORDER BY {lane} LIMIT 1"
    )
    seen, name, wrapped = 0, start, False
    while seen < LANES_VISITED_MAX:
        row = transaction.connection.execute(sql, (name,)).fetchone()
        if row is None or (wrapped and row[0] > start):
            if wrapped or not start:
                return
            name, wrapped = "", True
            continue
        name, seen = row[0], seen + 1
        if name not in request.skip_lanes:
            yield name


def _lane(mapping: SqliteTableMapping) -> str:
    claim = mapping.schema.claim
    assert claim is not None
    assert claim.lane is not None
    column = mapping.schema.column(claim.lane)
    assert column is not None
    return column.stored


def _mine(mapping: SqliteTableMapping, request: ClaimRequest) -> tuple[str, tuple[str, ...]]:
    if request.tenant is None or mapping.schema.tenant is None:
        return "", ()
    return f" AND {quote(mapping.schema.tenant.stored)} = ?", (request.tenant,)


def _select(mapping: SqliteTableMapping) -> str:
    shown = ", ".join(map(quote, mapping.selected))
    return f"SELECT {shown} FROM {quote(mapping.table)}"


def _update_sql(mapping: SqliteTableMapping) -> str:
    claim = mapping.schema.claim
    assert claim is not None
    due, fence, *others = (quote(c.stored) for c in mapping.claim_columns)
    sets = [
        f"{due} = ?",
        f"{fence} = {fence} + 1",
        f"{quote(VERSION)} = ?",
        *(f"{name} = ?" for name in others),
    ]
    numbers = "SELECT value FROM json_each(?)"
    return f"UPDATE {quote(mapping.table)} SET {', '.join(sets)} WHERE {ROW} IN ({numbers})"


def _marks(mapping: SqliteTableMapping, request: ClaimRequest) -> list[Any]:
    """What claiming writes beside due and fence, as the columns keep it."""
    claim = mapping.schema.claim
    assert claim is not None
    marks = ([request.owner] if claim.owner else []) + ([claim.state[1]] if claim.state else [])
    return [
        ordered(mark) if c.kind == "open" else mark
        for c, mark in zip(mapping.claim_columns[2:], marks, strict=True)
    ]


def _taken(
    mapping: SqliteTableMapping, rows: list[Row], request: ClaimRequest, *, version: int
) -> Iterator[Snapshot[Any]]:
    """The documents as they are now that they are claimed, without reading them again."""
    (due, _), (fence, _), *others = mapping.overlay
    marks = [
        (path, convert(mark) if convert else mark)
        for (path, convert), mark in zip(others, _marks(mapping, request), strict=True)
    ]
    shared = [(due, from_us(request.now_us + request.lease_us)), *marks]
    for row in rows:
        document = mapping.decode(row)
        force_setattr(document, fence, row[CLAIM_COLUMNS_AT + 1] + 1)
        for path, value in shared:
            force_setattr(document, path, value)
        yield Snapshot(document, version, row[0])
