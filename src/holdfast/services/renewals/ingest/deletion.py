"""Removing what is gone from a source: rows of one portfolio that the source no longer has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final
from zlib import crc32

from holdfast.model import schema_of
from holdfast.services.renewals.domain.names import name_key
from holdfast.services.renewals.ingest.rows import key_in
from holdfast.services.renewals.ingest.sources import CsvTable
from holdfast.services.renewals.ingest.table_import import BATCH, batches, keep_all
from holdfast.services.renewals.models import TABLES, PropertyName
from holdfast.store import Query, Snapshot, Store, Write, delete

# How many ids are held in memory at once; larger tables are gone through in parts.
PART: Final = 200_000
_PAGE: Final = 5_000


async def remove_gone(store: Store, sheet: CsvTable, *, guard: Write, part: int = PART) -> int:
    """Remove every stored row of the table that the sheet does not have; says how many.

    A row that is there and does not fit is there: what is stored of it stays.
    """
    removed = 0
    async for keys in _gone(store, sheet, part=part):
        for start in range(0, len(keys), BATCH // 2):
            removed += await _remove(store, sheet.table, keys[start : start + BATCH // 2], guard=guard)
    return removed


async def _gone(store: Store, sheet: CsvTable, *, part: int) -> AsyncIterator[list[str]]:
    parts = sheet.count // part + 1
    for number in range(parts):
        there = await _keys(sheet, number, parts=parts)
        async for rows in store.select(_all(sheet.table)):
            stored = (row[0] for row in rows)
            yield [key for key in stored if _part(key, parts) == number and key not in there]


async def _keys(sheet: CsvTable, number: int, *, parts: int) -> set[str]:
    """The ids, in one part, of the rows that are there, also of those that do not fit."""
    there: set[str] = set()
    for rows in batches(sheet.rows(), BATCH):
        keys = (key_in(sheet.table, row.values) for row in rows)
        there.update(key for key in keys if _part(key, parts) == number)
        # A large table must not keep others on the event loop waiting.
        await asyncio.sleep(0)
    return there


def _part(key: str, parts: int) -> int:
    return crc32(key.encode()) % parts


def _all(table: str) -> Query[Any]:
    """Every row of the portfolio, as the table's first index has them."""
    index = schema_of(TABLES[table]).indexes[0]
    words = [("-" if field.descending else "") + field.column.path for field in index.fields]
    return Query(TABLES[table]).order_by(*words).limit(_PAGE)


async def _remove(store: Store, table: str, keys: list[str], *, guard: Write) -> int:
    found = [one for one in await store.get_many(TABLES[table], keys) if one is not None]
    commits = [[delete(TABLES[table], one.key, expect=one.unchanged)] for one in found]
    if table == "properties":
        for writes, name in zip(commits, await _names(store, found), strict=True):
            writes += name
    return sum(fault is None for fault in await keep_all(store, guard, commits=commits))


async def _names(store: Store, properties: list[Snapshot[Any]]) -> list[list[Write]]:
    """What gives the names of these properties free."""
    keys = [name_key(one.doc.name, one.doc.tenant_id) for one in properties]
    held = await store.get_many(PropertyName, keys)
    return [
        [delete(PropertyName, key, expect=name.unchanged)] if name and name.doc.property_id == one.key else []
        for key, name, one in zip(keys, held, properties, strict=True)
    ]
