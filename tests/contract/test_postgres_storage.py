"""On PostgreSQL rows of up to 4,080 bytes stay in their page, and larger values are compressed by LZ4."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast.app import ddl, open_store
from holdfast.model import Document, document
from holdfast.store import Catalog, MigrationRequest, Store, create, patch
from holdfast.store.postgres.storage import InspectedStorage, Storage, storage_step

SET = "set storage of letters"


@document("letters/{id}")
class Letter(Document):
    id: str
    text: str = ""
    answer: str = ""


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[tuple[Store, asyncpg.Connection[Any]]]:
    store, link = await open_store(url, [Letter]), await asyncpg.connect(url)
    await store.migrate()
    try:
        yield store, link
    finally:
        await link.close()
        await store.close()


async def _moved_bytes(link: asyncpg.Connection[Any]) -> int:
    """The size of what the server has moved out of the rows."""
    moved = await link.fetchval(
        "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'letters'"
    )
    return int(moved)


async def test_a_row_stays_in_its_page_until_two_would_not_fit(postgres_url: str) -> None:
    async with _opened(postgres_url) as (store, link):
        # Incompressible, so that nothing but the row's size decides.
        await store.commit(create(Letter(id="a", text=secrets.token_hex(1_600))))
        await store.commit(patch(Letter, "a", changes={"answer": secrets.token_hex(200)}))
        assert await _moved_bytes(link) == 0
        await store.commit(create(Letter(id="b", text=secrets.token_hex(5_000))))
        assert await _moved_bytes(link) > 0
        found = await store.get(Letter, "a")
        assert found is not None
        assert (len(found.doc.text), len(found.doc.answer)) == (3_200, 400)


async def test_a_table_of_an_earlier_release_is_set_once_also_beside_its_processes(postgres_url: str) -> None:
    async with _opened(postgres_url) as (store, link):
        await link.execute("ALTER TABLE letters RESET (toast_tuple_target)")
        beside = MigrationRequest(other_releases=True)
        assert await store.diff(beside) == [SET]
        assert await store.migrate(beside) == [SET]
        assert (await store.diff(), await store.migrate()) == ([], [])


async def test_what_somebody_has_chosen_for_a_table_stays(postgres_url: str) -> None:
    async with _opened(postgres_url) as (store, link):
        await link.execute("ALTER TABLE letters SET (toast_tuple_target = 256)")
        assert (await store.diff(), await store.migrate()) == ([], [])
        options = await link.fetchval("SELECT reloptions FROM pg_class WHERE relname = 'letters'")
        assert options == ["toast_tuple_target=256"]


async def test_a_lock_that_somebody_holds_leaves_it_to_the_next_migration(postgres_url: str) -> None:
    async with _opened(postgres_url) as (store, link):
        await link.execute("ALTER TABLE letters RESET (toast_tuple_target)")
        await link.execute("BEGIN; LOCK TABLE letters IN SHARE UPDATE EXCLUSIVE MODE")
        assert await store.migrate() == []
        await link.execute("ROLLBACK")
        assert await store.migrate() == [SET]


async def test_a_user_who_does_not_own_the_table_is_not_kept_from_starting(postgres_url: str) -> None:
    async with _opened(postgres_url) as (_, link):
        await link.execute("ALTER TABLE letters RESET (toast_tuple_target)")
        name = f"reader_{secrets.token_hex(4)}"
        await link.execute(f"CREATE ROLE {name} LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
        parts = urlsplit(postgres_url)
        other = await open_store(
            urlunsplit(parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}")), [Letter]
        )
        assert await other.diff() == []
        await other.close()
        await link.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_exported_statements_set_what_a_migration_sets(postgres_url: str) -> None:
    link = await asyncpg.connect(postgres_url)
    for statement in ddl("postgres", Catalog([Letter])):
        await link.execute(statement)
    await link.close()
    store = await open_store(postgres_url, [Letter])
    assert SET not in await store.diff()
    await store.close()


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (Storage(), 'SET (toast_tuple_target = 4080), ALTER COLUMN "_body" SET COMPRESSION lz4,'
         ' ALTER COLUMN "_patch" SET COMPRESSION lz4'),
        (Storage(has_target=True, compressed=("_body",)), 'ALTER COLUMN "_patch" SET COMPRESSION lz4'),
        (Storage(has_target=True, compressed=("_body", "_patch")), None),
    ],
)  # fmt: skip
def test_lz4_is_set_where_the_server_has_it_and_nobody_chose_otherwise(
    stored: Storage, wanted: str | None
) -> None:
    steps = list(storage_step("letters", InspectedStorage({"letters": stored}, has_lz4=True), is_new=False))
    assert [step.statements for step in steps] == ([(f'ALTER TABLE "letters" {wanted}',)] if wanted else [])
