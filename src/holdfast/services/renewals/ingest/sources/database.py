"""An existing PostgreSQL schema, which is only read: one snapshot of it, copied out and let go.

The copy goes to files without a name, so that nothing of it outlives the process. The server is left
before anything is done with what was read: its snapshot is held as short as can be, and a server that goes
away in the middle has changed nothing here.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, TypeAlias

import asyncpg

from holdfast.errors import ConfigError, RetryLaterError
from holdfast.services.renewals.ingest.rows import columns_of
from holdfast.services.renewals.ingest.sources.address import parse_address
from holdfast.services.renewals.ingest.sources.csv_table import CsvTable
from holdfast.services.renewals.models import TABLES

Link: TypeAlias = "asyncpg.Connection[Any]"
CONNECT_S: Final = 10.0
TABLE_S: Final = 600.0
_SETTINGS: Final = {
    "application_name": "holdfast renewals",
    "default_transaction_read_only": "on",
    "lock_timeout": "30s",
    "DateStyle": "ISO, YMD",
    "TimeZone": "UTC",
}
_COLUMNS: Final = """
    SELECT c.relname::text AS table, a.attname::text AS column
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE n.nspname = $1 AND c.relname = ANY ($2) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    ORDER BY a.attnum
"""
_SCHEMA: Final = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)"
_REFUSED: Final = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_KEYS: Final = {"unit_pricing": ("unit_id", "effective_date")}


class Database:
    """A schema that holds the given tables, or views of their names.

    Example: `await Import(store, Database("postgresql://rop@db/platform?schema=rop")).run()`
    """

    mirrored = True

    def __init__(self, url: str) -> None:
        self._address = parse_address(url)
        self.name = self._address.name

    @asynccontextmanager
    async def read(self) -> AsyncIterator[dict[str, CsvTable]]:
        with ExitStack() as files:
            sheets: dict[str, CsvTable] = {}
            async with self._snapshot() as link:
                columns = await self._columns(link)
                for table, names in columns.items():
                    file = files.enter_context(tempfile.TemporaryFile())
                    sheets[table] = await self._copied(link, table, names, file=file)
            yield sheets

    async def check(self) -> None:
        """Raise what reading would meet first, without reading rows."""
        async with self._snapshot() as link:
            for table, names in (await self._columns(link)).items():
                await link.execute(f"{self._question(table, names)} LIMIT 0")

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[Link]:
        with self._told():
            link = await asyncpg.connect(
                self._address.dsn, timeout=CONNECT_S, command_timeout=TABLE_S, statement_cache_size=0,
                server_settings=_SETTINGS,
            )  # fmt: skip
            try:
                async with link.transaction(isolation="repeatable_read", readonly=True):
                    yield link
            finally:
                await _shut(link)

    async def _columns(self, link: Link) -> dict[str, list[str]]:
        """The columns of each table that are there; refuses a schema without one that is needed."""
        schema = self._address.schema
        if not await link.fetchval(_SCHEMA, schema):
            raise ConfigError(f"{self.name}: there is no schema {schema!r}; name another with ?schema=")
        found: dict[str, list[str]] = {table: [] for table in TABLES}
        for table, column in await link.fetch(_COLUMNS, schema, list(TABLES)):
            found[table].append(column)
        lacking = [word for table, names in found.items() for word in _lacking(table, names)]
        if lacking:
            raise ConfigError(
                f"{self.name} lacks {', '.join(lacking)}; add what is missing, or give it by a view of that"
                " name (an empty one where nothing is kept)"
            )
        return found

    async def _copied(self, link: Link, table: str, names: list[str], *, file: Any) -> CsvTable:
        digest = hashlib.blake2b(digest_size=16)

        async def keep(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        question = self._question(table, names)
        done = await link.copy_from_query(question, output=keep, format="csv", header=True, timeout=TABLE_S)
        return CsvTable(
            table, file, label=f"{self._address.schema}.{table}", in_database=True,
            digest=digest.hexdigest(), count=int(done.removeprefix("COPY ")),
        )  # fmt: skip

    def _question(self, table: str, names: list[str]) -> str:
        known, _ = columns_of(table)
        # As text, so that the blanks that fill up a `char(n)` are not taken for a part of it.
        shown = ", ".join(f"t.{_quoted(name)}::text AS {_quoted(name)}" for name in names if name in known)
        order = ", ".join(f"t.{_quoted(name)}" for name in _KEYS.get(table, ("id",)))
        return f"SELECT {shown} FROM {_quoted(self._address.schema)}.{_quoted(table)} t ORDER BY {order}"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the driver and the server say, in one sentence that tells what to do next."""
        try:
            yield
        except asyncpg.InsufficientPrivilegeError as fault:
            raise ConfigError(
                f"{self.name}: {_said(fault)}; the user needs USAGE on the schema and SELECT on its tables"
            ) from None
        except _REFUSED as fault:
            raise ConfigError(f"{self.name}: {_said(fault)}; correct the source's URL") from None
        except (ValueError, asyncpg.ClientConfigurationError):
            # Not quoted: what can't be understood may hold the password.
            raise ConfigError(f"{self.name}: the driver can't use this URL; check its options") from None
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError) as fault:
            raise RetryLaterError(
                f"{self.name} can't be read: {_said(fault)}; nothing was changed", after_s=60
            ) from None


def _lacking(table: str, names: list[str]) -> list[str]:
    if not names:
        return [f"the table {table}"]
    _, needed = columns_of(table)
    return [f"the column {table}.{name}" for name in needed if name not in names]


async def _shut(link: Link) -> None:
    """Say goodbye to the server where it still listens."""
    try:
        await link.close(timeout=1)
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError):
        link.terminate()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _said(fault: BaseException) -> str:
    return " ".join(str(fault).split()) or "no answer in time"
