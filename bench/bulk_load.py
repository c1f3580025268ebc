"""Rows inserted past the engine: set-up that is not measured.

Rows of documents are those of the engine's table mapping. Secondary indexes are dropped meanwhile and built
once all rows are in, which takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import apsw
import asyncpg

from holdfast.model import Document, schema_of
from holdfast.store.catalog import Catalog
from holdfast.store.postgres.statement import PostgresTable
from holdfast.store.sqlite.statements import SqliteTable

LOAD_S_MAX = 3_600


@contextmanager
def sqlite_load(url: str, tables: Sequence[str], *, analyze: bool = False) -> Iterator[apsw.Connection]:
    """A connection for filling these tables; as fast as can be, and durable at the end."""
    link = apsw.Connection(url.removeprefix("sqlite:///").partition("?")[0])
    link.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000")
    marks = ", ".join("?" * len(tables))
    found = link.execute(
        f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql <> '' AND tbl_name IN ({marks})",
        tuple(tables),
    ).fetchall()
    with link:
        for name, _ in found:
            link.execute(f'DROP INDEX "{name}"')
        yield link
        for _, statement in found:
            link.execute(str(statement))
    if analyze:
        link.execute("ANALYZE")
    link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    link.close()


@asynccontextmanager
async def postgres_load(url: str, tables: Sequence[str]) -> AsyncIterator[Any]:
    """The same on PostgreSQL; statistics are left as autovacuum would, so that no reader pays for them."""
    link = await asyncpg.connect(url, command_timeout=LOAD_S_MAX)
    found = await link.fetch(
        "SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS statement FROM pg_index"
        " WHERE indrelid = any($1::text[]::regclass[]) AND NOT indisprimary", list(tables),
    )  # fmt: skip
    await link.execute("SET maintenance_work_mem = '512MB'")
    for row in found:
        await link.execute(f"DROP INDEX {row['name']}")
    yield link
    for row in found:
        await link.execute(row["statement"])
    await link.execute("VACUUM ANALYZE")
    await link.execute("CHECKPOINT")
    await link.close()


async def load(url: str, kind: type[Document], documents: Iterable[Document]) -> None:
    """Insert documents of one class into its table, which must have been made."""
    schema = schema_of(kind)
    table = Catalog([kind]).table(schema)
    prepared = (schema.prepare_encoded(schema.encode(one)) for one in documents)
    if url.startswith("sqlite"):
        sqlite = SqliteTable(schema, table)
        assert not sqlite.lists
        rows = (sqlite.inserted(one, version=1) for one in prepared)
        with sqlite_load(url, [table]) as file:
            file.executemany(sqlite.insert_sql, rows)
        return
    postgres = PostgresTable(schema, table)
    assert not postgres.lists
    records = (postgres.row(one, 1) for one in prepared)
    async with postgres_load(url, [table]) as link:
        await link.copy_records_to_table(
            table, columns=postgres.names, records=((*row[:-1], row[-1].decode()) for row in records)
        )
