"""Migrated stores to copy: creating its tables, indexes and policies is most of what opening a runtime costs.

A runtime that opens an empty store finds there what its own migration would have created, from the second one
with the same documents on. The first migrates, as do those that processes of their own open.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import apsw
import asyncpg
import pytest

from holdfast.app import open_store
from holdfast.config import Config
from holdfast.model import Document
from holdfast.private_files import create_file
from holdfast.runtime import Runtime
from holdfast.runtime.discovery import find_services
from holdfast.runtime.document_registry import documents_of
from holdfast.service import Service
from holdfast.store.sqlite.connections import parse_url
from holdfast.testing import ManualClock
from holdfast.testing.postgres import create_database

# The first id of what users create; and whether the database itself has settings or grants.
_IS_EMPTY = """
SELECT NOT EXISTS (SELECT FROM pg_class WHERE oid >= 16384)
AND NOT EXISTS (SELECT FROM pg_namespace WHERE oid >= 16384)
AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = pg_database.oid) AND datacl IS NULL
FROM pg_database WHERE datname = current_database()
"""
_Key = tuple[str, str, frozenset[type[Document]]]


class StoreTemplates:
    """Fills empty stores; templates of PostgreSQL are databases on the tests' server until `drop`."""

    def __init__(self) -> None:
        self._asked: set[_Key] = set()
        self._files: dict[_Key, bytes] = {}
        self._databases: dict[_Key, str] = {}
        self._server = ""

    async def fill(self, url: str, documents: Sequence[type[Document]], env: str) -> None:
        """Put what a migration creates into the store at the URL, if it is empty."""
        key = urlsplit(url).scheme, env, frozenset(documents)
        if key not in self._asked:
            self._asked.add(key)
        elif key[0] == "sqlite":
            await self._fill_file(key, url)
        elif key[0] == "postgresql":
            await self._fill_database(key, url)

    async def _fill_file(self, key: _Key, url: str) -> None:
        path = Path(parse_url(url).path)
        if path.exists():
            return
        if key not in self._files:
            self._files[key] = await _template_file(key)
        create_file(path)
        path.write_bytes(self._files[key])

    async def _fill_database(self, key: _Key, url: str) -> None:
        name = urlsplit(url).path.removeprefix("/")
        if not name.startswith("test_") or not await _is_empty(url):
            return
        if key not in self._databases:
            template = f"template_{secrets.token_hex(8)}"
            async with _connected(self._of_server(url)) as server:
                await create_database(server, template)
            await _migrate(_database(url, template), key)
            self._databases[key] = template
        # Whoever is connected keeps the database as it is.
        with contextlib.suppress(asyncpg.ObjectInUseError):
            async with _connected(self._of_server(url)) as server:
                await server.execute(f'DROP DATABASE "{name}"')
                await create_database(server, name, template=self._databases[key])

    def _of_server(self, url: str) -> str:
        self._server = _database(url, "postgres")
        return self._server

    async def drop(self) -> None:
        if not self._databases:
            return
        # A server of this run may have ended before.
        with contextlib.suppress(OSError):
            async with _connected(self._server) as server:
                for name in self._databases.values():
                    await server.execute(f'DROP DATABASE "{name}"')


async def _template_file(key: _Key) -> bytes:
    with TemporaryDirectory() as folder:
        template = Path(folder, "template.db")
        await _migrate(f"sqlite:///{template}", key)
        with contextlib.closing(apsw.Connection(str(template))) as connection:
            # Every store names itself.
            connection.execute("DELETE FROM _holdfast_meta WHERE name = 'store_id'")
        return template.read_bytes()


async def _migrate(url: str, key: _Key) -> None:
    _, env, documents = key
    store = await open_store(url, documents, env=env, clock=ManualClock())
    try:
        await store.migrate()
    finally:
        await store.close()


async def _is_empty(url: str) -> bool:
    async with _connected(url) as connection:
        return bool(await connection.fetchval(_IS_EMPTY))


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def _database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


TEMPLATES: Final = StoreTemplates()


def fill_stores_of_runtimes(patch: pytest.MonkeyPatch) -> None:
    """Let every runtime that would migrate an empty store find it filled."""
    original = Runtime.open

    async def open_filled(
        cls: type[Runtime], /, config: Config, *, services: Sequence[Service] | None = None, **more: Any
    ) -> Runtime:
        chosen = find_services() if services is None else services
        if more.get("migrate", True) and not more.get("only") and not config.services:
            await TEMPLATES.fill(config.store, documents_of(chosen), config.prefix)
        return await original(config, services=services, **more)

    patch.setattr(Runtime, "open", classmethod(open_filled))
