"""Logins of the roles: a session can't choose whom it acts for, nor rewrite what is append-only."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from holdfast.kit.access.models import ApiToken
from holdfast.kit.access.users import User
from holdfast.model import Document, Index, Retention, document
from holdfast.model.access import NO_TENANT, Access
from holdfast.store import Catalog, Query, Store, create, delete, patch, postgres

ADMINS_WRITE = Access(read=["viewer"], write=["admin"])
_PAST = datetime(2020, 1, 1, tzinfo=UTC)


@document(
    "offers/{id}",
    tenant="tenant_id",
    indexes=[Index("tags[]")],
    access=ADMINS_WRITE,
)
class Offer(Document):
    id: str
    tenant_id: str
    tags: list[str] = []


@document(
    "receipts/{id}",
    tenant="tenant_id",
    append_only=True,
    access=Access(read=["viewer"], write=["viewer", "service"]),
)
class Receipt(Document):
    id: str
    tenant_id: str


@document(
    "traces/{id}", append_only=True, retention=Retention("at", after_s=60), access=Access(write=["service"])
)
class Trace(Document):
    id: str
    at: datetime


CATALOG = Catalog([Offer, Receipt, Trace, User, ApiToken])
DOCUMENTS: list[Document] = [
    Offer(id="o1", tenant_id="acme", tags=["x"]),
    Offer(id="o2", tenant_id="other"),
    Receipt(id="r1", tenant_id="acme"),
    Trace(id="t1", at=_PAST),
    User(id="ann", role="owner", password="$argon2id$hash", created_at=_PAST),
    ApiToken(id="a" * 16, name="ci", role="service", scopes=[], hash="f00d", created_at=_PAST),
]
LogIn: TypeAlias = Callable[[str], Awaitable[Any]]


def _url_of(url: str, login: str) -> str:
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{login}:{login}@{place}"))


@pytest.fixture
async def admin(postgres_url: str) -> AsyncIterator[Any]:
    store = Store(await postgres.connect(postgres_url, CATALOG))
    await store.migrate()
    await store.privileged().commit(*(create(one) for one in DOCUMENTS))
    await store.close()
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def logins(admin: Any) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """Makes logins that are members of a role; the whole server has them until the test ends."""
    names: list[str] = []

    async def make(role: str) -> str:
        names.append(f"login_{secrets.token_hex(6)}")
        await admin.execute(f"CREATE ROLE {names[-1]} LOGIN PASSWORD '{names[-1]}' IN ROLE {role}")
        return names[-1]

    yield make
    for name in names:
        await admin.execute(f"DROP ROLE {name}")


@pytest.fixture
async def log_in(postgres_url: str, logins: Callable[[str], Awaitable[str]]) -> AsyncIterator[LogIn]:
    opened: list[Any] = []

    async def connect(role: str) -> Any:
        opened.append(await asyncpg.connect(_url_of(postgres_url, await logins(role))))
        return opened[-1]

    yield connect
    for connection in opened:
        await connection.close()


async def _member(admin: Any, log_in: LogIn, *, tenant: str, role: str) -> Any:
    connection = await log_in("holdfast_app")
    login = await connection.fetchval("SELECT session_user")
    await admin.execute("INSERT INTO _holdfast_logins VALUES ($1, $2, 'ann', $3)", login, tenant, role)
    return connection


async def _claim_to_be(connection: Any, *, tenant: str, role: str) -> None:
    for name, value in (("tenant", tenant), ("user", "ann"), ("role", role)):
        await connection.execute("SELECT set_config($1, $2, false)", f"holdfast.{name}", value)


async def _keys(connection: Any, table: str) -> set[str]:
    return {row["_key"] for row in await connection.fetch(f"SELECT _key FROM {table}")}


async def test_a_plain_login_reads_as_its_row_says_whatever_the_session_claims(
    admin: Any, log_in: LogIn
) -> None:
    member, stranger = (
        await _member(admin, log_in, tenant="acme", role="viewer"),
        await log_in("holdfast_app"),
    )
    for tenant, role in (("acme", "viewer"), ("other", "owner"), ("*", "service"), ("-", "owner")):
        for connection in (member, stranger):
            await _claim_to_be(connection, tenant=tenant, role=role)
        assert await _keys(member, "offers") == {"o1"}
        assert await member.fetch("SELECT id FROM view_offers") == [("o1",)]
        assert await member.fetch("SELECT id FROM view_holdfast_users") == []
        assert await stranger.fetch("SELECT id FROM view_offers") == []
        assert await member.execute("UPDATE offers SET _version = 0") == "UPDATE 0"
        assert await _keys(stranger, "offers") == set()


async def test_a_plain_login_can_not_change_who_it_is(admin: Any, log_in: LogIn) -> None:
    member = await _member(admin, log_in, tenant="acme", role="viewer")
    other = await _member(admin, log_in, tenant="other", role="owner")
    for text in (
        "UPDATE _holdfast_logins SET tenant = 'other'",
        "INSERT INTO _holdfast_logins VALUES ('x', 'other', 'ann', 'owner')",
        "DELETE FROM _holdfast_logins",
        "SET ROLE holdfast_service",
        "SET ROLE holdfast_engine",
        "ALTER TABLE offers DISABLE ROW LEVEL SECURITY",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await member.execute(text)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await member.execute(f"SET SESSION AUTHORIZATION {await other.fetchval('SELECT session_user')}")
    assert [row["tenant"] for row in await member.fetch("SELECT tenant FROM _holdfast_logins")] == ["acme"]
    # A table of the session's own under that name is not the one that the policies read.
    await member.execute(
        "CREATE TEMP TABLE _holdfast_logins AS"
        " SELECT session_user AS login, 'other' AS tenant, 'ann' AS user_id, 'owner' AS role"
    )
    assert await _keys(member, "offers") == {"o1"}


async def test_a_row_of_a_login_can_not_make_it_a_service(admin: Any, log_in: LogIn) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await _member(admin, log_in, tenant="*", role="service")


@pytest.mark.parametrize("table", ["holdfast_users", "holdfast_api_tokens"])
async def test_password_and_token_hashes_are_read_by_a_service_alone(
    admin: Any, log_in: LogIn, table: str
) -> None:
    owner = await _member(admin, log_in, tenant=NO_TENANT, role="owner")
    await _claim_to_be(owner, tenant="*", role="service")
    assert await owner.fetch(f"SELECT * FROM {table}") == []
    service = await log_in("holdfast_service")
    await _claim_to_be(service, tenant=NO_TENANT, role="owner")
    assert await service.fetch(f"SELECT * FROM {table}") == []
    await _claim_to_be(service, tenant=NO_TENANT, role="service")
    assert len(await service.fetch(f"SELECT * FROM {table}")) == 1


async def test_append_only_rows_are_added_but_changed_and_deleted_by_no_login(
    admin: Any, log_in: LogIn
) -> None:
    service, engine = await log_in("holdfast_service"), await log_in("holdfast_engine")
    await _claim_to_be(service, tenant="*", role="service")
    for connection in (await _member(admin, log_in, tenant="acme", role="owner"), service, engine):
        for text in ("UPDATE receipts SET _version = 0", "DELETE FROM receipts", "TRUNCATE receipts"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(text)
        text = "INSERT INTO receipts (_key, _version, tenant_id, _body) VALUES ($1, 1, 'acme', '{}')"
        await connection.execute(text, secrets.token_hex(6))
    assert len(await _keys(admin, "receipts")) == 4


async def test_a_collection_that_becomes_append_only_loses_what_was_granted(
    postgres_url: str, admin: Any, log_in: LogIn
) -> None:
    @document("offers/{id}", tenant="tenant_id", append_only=True, access=ADMINS_WRITE)
    class FinalOffer(Document):
        id: str
        tenant_id: str

    member = await _member(admin, log_in, tenant="acme", role="admin")
    assert await member.execute("UPDATE offers SET _version = _version") == "UPDATE 1"
    store = Store(await postgres.connect(postgres_url, Catalog([FinalOffer])))
    assert "protect offers" in await store.migrate()
    await store.close()
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await member.execute("UPDATE offers SET _version = _version")


async def test_the_engine_runs_as_a_role_that_the_policies_bind(
    postgres_url: str, admin: Any, logins: Callable[[str], Awaitable[str]]
) -> None:
    store = Store(await postgres.connect(_url_of(postgres_url, await logins("holdfast_engine")), CATALOG))
    try:
        assert await store.migrate() == []
        acme = store.tenant("acme")
        await acme.commit(
            create(Offer(id="o3", tenant_id="acme", tags=["y"])), patch(Offer, "o1", changes={"tags": ["y"]})
        )
        found = await acme.query(Query(Offer).where("tags", "array-contains", "y"))
        assert {one.id for one in found.docs} == {"o1", "o3"}
        await acme.commit(delete(Offer, "o3"))
        assert await acme.get(Offer, "o3") is None
        await store.privileged().expire(Trace)
        assert await _keys(admin, "traces") == set()
    finally:
        await store.close()
    bound = "SELECT bool_and(relrowsecurity) FROM pg_class WHERE relname IN ('offers', 'receipts', 'traces')"
    assert await admin.fetchval(bound)
