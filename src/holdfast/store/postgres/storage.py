"""How rows are stored: up to which size in their page, and how larger values are compressed.

By default the server compresses values of rows past 2,032 bytes, slowly, and moves them out of the row. That
takes as long as all else that an insert or update does. A setting that somebody has chosen for a table stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from holdfast.store.postgres.pool import PgConnection
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.migration import MigrationStep
from holdfast.store.sql.tables import BODY, PATCH

ROW_BYTES_TARGET: Final = 4_080  # two rows to a page
WAITS_S_MAX: Final = 0.2  # others' writes wait behind it
_TARGET: Final = "toast_tuple_target"
# Servers before version 14 have neither the catalog's column nor the setting.
_STORAGE: Final = f"""
SELECT c.relname, EXISTS (SELECT FROM unnest(c.reloptions) AS o WHERE o LIKE '{_TARGET}=%') AS has_target,
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid
    AND to_jsonb(a) ->> 'attcompression' <> '') AS compressed
FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
  AND c.relname = ANY($1::text[]) AND pg_has_role(c.relowner, 'USAGE')"""
_HAS_LZ4: Final = "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"


class Storage(msgspec.Struct, frozen=True):
    """What is set of a table: the size of rows that stay in their page, and the compression of columns."""

    has_target: bool = False
    compressed: tuple[str, ...] = ()


class InspectedStorage(msgspec.Struct, frozen=True):
    """The storage of existing tables that this user may alter, and whether the server has LZ4."""

    tables: dict[str, Storage]
    has_lz4: bool


async def inspect_storage(connection: PgConnection, names: Sequence[str]) -> InspectedStorage:
    rows = await connection.fetch(_STORAGE, names)
    tables = {row["relname"]: Storage(row["has_target"], tuple(row["compressed"])) for row in rows}
    return InspectedStorage(tables, bool(await connection.fetchval(_HAS_LZ4)))


def storage_step(table: str, found: InspectedStorage, *, is_new: bool) -> Iterator[MigrationStep]:
    """Yield the step that sets what nobody has set, unless somebody else owns the table."""
    storage = Storage() if is_new else found.tables.get(table)
    statement = "" if storage is None else _set_storage(table, storage, lz4=found.has_lz4)
    if statement:
        yield MigrationStep(
            label=f"set storage of {table}", statements=(statement,), unused=is_new,
            waits_s_max=0 if is_new else WAITS_S_MAX,
        )  # fmt: skip


def create_storage(table: str) -> list[str]:
    """Return the statements that set the storage of a new table on any server."""
    compress = _set_storage(table, Storage(has_target=True), lz4=True).replace("'", "''")
    return [
        _set_storage(table, Storage(), lz4=False),
        f"DO $$ BEGIN IF ({_HAS_LZ4}) THEN EXECUTE '{compress}'; END IF; END $$",
    ]


def _set_storage(table: str, storage: Storage, *, lz4: bool) -> str:
    changes = [] if storage.has_target else [f"SET ({_TARGET} = {ROW_BYTES_TARGET})"]
    unset = [name for name in (BODY, PATCH) if name not in storage.compressed]
    changes += [f"ALTER COLUMN {quote(name)} SET COMPRESSION lz4" for name in unset if lz4]
    return f"ALTER TABLE {quote(table)} {', '.join(changes)}" if changes else ""
