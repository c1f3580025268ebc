"""Row-level security: hand-written SQL under the application's role reaches what the rules allow, no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast.model import Document, Index, document
from holdfast.model.access import Access, Action, Caller
from holdfast.model.document import schema_of
from holdfast.store import Catalog, Store, create, postgres
from holdfast.store.postgres.address import parse_url
from holdfast.store.postgres.pool import ConnectionPool, PgConnection
from holdfast.store.postgres.security import LOGINS, ROLE_NAMES
from holdfast.store.postgres.statement import PostgresTable
from holdfast.store.sql.dialect import quote
from holdfast.testing import OwnPostgresServer


@document(
    "deals/{id}",
    tenant="tenant_id",
    indexes=[Index("tags[]")],
    access=Access(
        read=["viewer"], create=["developer"], update=["admin", "self:seller"], delete=["owner", "service"]
    ),
)
class Deal(Document, rename="camel"):
    id: str
    tenant_id: str
    seller: str = ""
    tags: list[str] = []


@document(
    "tenants/{tenant_id}/memos/{id}",
    tenant="tenant_id",
    path_only=["tenant_id"],
    access=Access(read=["signed_in"], write=["service"]),
)
class Memo(Document):
    tenant_id: str
    id: str


@document(
    "users/{user_id}/drafts/{id}",
    access=Access(read=["public"], create=["signed_in"], update=["self:user_id"], delete=["self:by"]),
)
class Draft(Document):
    user_id: str
    id: str
    by: str | int = ""


@document("people/{id}", indexes=[Index("boss")], access=Access(read=["self:boss"], write=["admin"]))
class Person(Document):
    id: str
    boss: str | None = None


@document("plans/{id}", access=Access(read=["viewer"], write=["admin"]))
class Plan(Document):
    id: str


@document("keys/{id}")
class Key(Document):
    id: str


@document("bulletins/{id}", tenant="tenant_id", access=Access(read=["public"], write=["public"]))
class Bulletin(Document):
    id: str
    tenant_id: str


DOCUMENTS: list[Document] = [
    Deal(id="d1", tenant_id="acme", seller="ann", tags=["x"]),
    Deal(id="d2", tenant_id="acme", seller="bob", tags=["x"]),
    Deal(id="d3", tenant_id="other", seller="ann", tags=["x"]),
    Memo(tenant_id="acme", id="m1"),
    Memo(tenant_id="other", id="m1"),
    Draft(user_id="ann", id="1", by="bob"),
    Draft(user_id="bob", id="1", by="ann"),
    Draft(user_id="cid", id="1", by=7),
    Person(id="p1", boss="ann"),
    Person(id="p2"),
    Plan(id="p1"),
    Key(id="k1"),
    Bulletin(id="b1", tenant_id="acme"),
    Bulletin(id="b2", tenant_id="other"),
]
CLASSES = list(dict.fromkeys(type(one) for one in DOCUMENTS))
CATALOG = Catalog(CLASSES)
# The settings of a session: tenant, user, role.
CALLERS = [
    ("", "", ""), ("acme", "", ""), ("", "ann", ""), ("acme", "ann", ""), ("acme", "7", ""),
    *(("acme", user, role) for user in ("ann", "zoe") for role in ("viewer", "developer", "admin", "owner")),
    ("other", "ann", "owner"), ("*", "ann", "owner"), ("-", "ann", "viewer"), ("-", "ann", "admin"),
    ("acme", "", "owner"), ("acme", "ann", "boss"),
    ("acme", "", "service"), ("other", "", "service"), ("*", "", "service"), ("", "", "service"),
]  # fmt: skip


def allowed(one: Document, caller: tuple[str, str, str], action: Action) -> bool:
    """What the declaration's own evaluator says, and that tenants stay apart."""
    schema = schema_of(type(one))
    tenant, user, role = caller
    own = schema.tenant.read(one) if schema.tenant else None
    service = role == "service"
    if own is not None and own != tenant and not (service and tenant == "*"):
        return False
    asking = Caller(user_id=user or None, roles={tenant: role}, service=service)
    fields = {name: getattr(one, name) for name in schema.fields}
    return schema.access.allows(asking, action, tenant=own, fields=fields)


def keys(documents: list[Document]) -> set[str]:
    return {schema_of(type(one)).key_of(one) for one in documents}


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[PgConnection]:
    store = Store(await postgres.connect(postgres_url, CATALOG))
    await store.migrate()
    await store.privileged().commit(*(create(one) for one in DOCUMENTS))
    await store.close()
    opened = await ConnectionPool(parse_url(postgres_url)).open()
    yield opened
    await opened.close()


@asynccontextmanager
async def asking(connection: PgConnection, caller: tuple[str, str, str]) -> AsyncIterator[None]:
    """A transaction under the application's role, undone at the end."""
    change = connection.transaction()
    await change.start()
    for name, value in zip(("tenant", "user", "role"), caller, strict=True):
        await connection.execute("SELECT set_config($1, $2, true)", f"holdfast.{name}", value)
    await connection.execute("SET LOCAL ROLE holdfast_app")
    try:
        yield
    finally:
        await change.rollback()


async def stored_versions(connection: PgConnection, table: str) -> dict[str, int]:
    await connection.execute("RESET ROLE")
    return {row[0]: row[1] for row in await connection.fetch(f"SELECT _key, _version FROM {table}")}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
async def test_unfiltered_sql_reaches_exactly_what_the_rules_allow(
    connection: PgConnection, cls: type[Document]
) -> None:
    table = quote(CATALOG.table(schema_of(cls)))
    stored = [one for one in DOCUMENTS if type(one) is cls]
    for caller in CALLERS:
        async with asking(connection, caller):
            rows = await connection.fetch(f"SELECT * FROM {table}")
            assert {row["_key"] for row in rows} == keys([d for d in stored if allowed(d, caller, "read")])
        async with asking(connection, caller):
            await connection.execute(f"UPDATE {table} SET _version = 0")
            changed = {
                key for key, version in (await stored_versions(connection, table)).items() if version == 0
            }
            assert changed == keys([d for d in stored if allowed(d, caller, "update")]), caller
        async with asking(connection, caller):
            await connection.execute(f"DELETE FROM {table}")
            left = set(await stored_versions(connection, table))
            assert left == keys([d for d in stored if not allowed(d, caller, "delete")]), caller


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
async def test_a_row_can_be_added_exactly_when_the_rules_allow(
    connection: PgConnection, cls: type[Document]
) -> None:
    schema = schema_of(cls)
    mapping = PostgresTable(schema, CATALOG.table(schema))
    marks = ", ".join(f"${n}" for n in range(1, len(mapping.names) + 1))
    text = f"INSERT INTO {quote(mapping.table)} ({', '.join(map(quote, mapping.names))}) VALUES ({marks})"
    for caller in CALLERS:
        for one in [d for d in DOCUMENTS if type(d) is cls]:
            row = mapping.row(schema.prepare(_renamed(one)), 1)
            async with asking(connection, caller):
                if allowed(one, caller, "create"):
                    assert await connection.execute(text, *row) == "INSERT 0 1"
                else:
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await connection.execute(text, *row)


def _renamed(one: Document) -> Document:
    return msgspec.structs.replace(one, id="new")


async def test_a_row_can_not_be_moved_to_another_tenant(connection: PgConnection) -> None:
    async with asking(connection, ("acme", "ann", "owner")):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("UPDATE deals SET \"tenantId\" = 'other'")


async def test_joins_counts_and_guesses_do_not_cross_tenants(connection: PgConnection) -> None:
    async with asking(connection, ("acme", "ann", "viewer")):
        assert await connection.fetchval("SELECT count(*) FROM deals") == 2
        assert await connection.fetchval("SELECT count(*) FROM deals WHERE \"tenantId\" = 'other'") == 0
        assert await connection.fetchval("SELECT count(*) FROM deals WHERE _key = 'd3' OR true") == 2
        assert (
            await connection.fetchval(
                "SELECT count(*) FROM deals a JOIN deals b ON a._key <> b._version::text"
            )
            == 4
        )


@pytest.mark.parametrize("table", ["deals__tags__items", "_holdfast_batches", "_holdfast_schema"])
async def test_the_stores_own_tables_are_closed(connection: PgConnection, table: str) -> None:
    for caller in (("acme", "ann", "owner"), ("*", "", "service")):
        for text in (f"SELECT * FROM {table}", f"DELETE FROM {table}"):
            async with asking(connection, caller):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(text)


async def test_settings_end_with_their_transaction(connection: PgConnection) -> None:
    async with asking(connection, ("*", "", "service")):
        assert await connection.fetchval("SELECT count(*) FROM keys") == 1
    async with connection.transaction():
        await connection.execute("SET LOCAL ROLE holdfast_app")
        assert await connection.fetchval("SELECT count(*) FROM keys") == 0


async def test_changed_rules_replace_the_old_ones(postgres_url: str, connection: PgConnection) -> None:
    @document("keys/{id}", access=Access(read=["public"]))
    class OpenKey(Document):
        id: str

    store = Store(await postgres.connect(postgres_url, Catalog([OpenKey])))
    assert await store.migrate() == ["protect keys"]
    assert await store.migrate() == []
    await store.close()
    async with asking(connection, ("", "", "")):
        assert await connection.fetchval("SELECT count(*) FROM keys") == 1


async def test_where_the_role_may_not_be_made_the_rest_is_and_the_way_out_is_told(
    own_postgres: OwnPostgresServer,
) -> None:
    admin = await asyncpg.connect(own_postgres.url)
    await admin.execute("CREATE ROLE plain LOGIN")
    await admin.execute("CREATE DATABASE app OWNER plain")
    url = own_postgres.url.replace("postgres@", "plain@").removesuffix("/postgres") + "/app"
    store = Store(await postgres.connect(url, CATALOG))
    steps = await store.migrate()
    assert "CREATE ROLE holdfast_app NOLOGIN" in steps[-1]
    assert await store.diff() == steps[-1:]
    await store.privileged().commit(*(create(one) for one in DOCUMENTS))
    for role in ROLE_NAMES:
        await admin.execute(f"CREATE ROLE {role} NOLOGIN")
    tables = [LOGINS, *map(CATALOG.table, CATALOG.schemas)]
    assert await store.migrate() == [f"protect {table}" for table in tables]
    assert await store.diff() == []
    await store.close()
    await admin.close()


async def test_the_exported_statements_make_the_same_database(postgres_url: str) -> None:
    connection: Any = await asyncpg.connect(postgres_url)
    for statement in postgres.ddl(CATALOG):
        await connection.execute(statement)
    await connection.close()
    store = Store(await postgres.connect(postgres_url, CATALOG))
    left = await store.diff()
    await store.migrate()
    assert all(line.startswith("protect ") for line in left)
    assert await store.diff() == []
    await store.close()
