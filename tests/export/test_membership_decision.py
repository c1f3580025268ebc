"""One decision by membership: the gate of a route, Firestore rules and row-level security agree."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any, Final

import asyncpg
import pytest

from holdfast.app import open_store
from holdfast.errors import ForbiddenError
from holdfast.kit.access import Gate, Roles
from holdfast.model import Access, Caller, Document, document, schema_of
from holdfast.model.export import export
from holdfast.store import Store, create
from holdfast.testing import EmulatorMissingError
from tests.examples.clubs import Club, ClubMember, ClubNote
from tests.export.conftest import GuardedFirestore, GuardedFirestoreFactory, require_emulator
from tests.export.firestore_rest import person

TENANTS: Final = ("acme", "other", "-")


@document("club_plans/{id}", tenant="club_id", access=Access(read=["admin"]))
class ClubPlan(Document):
    id: str
    club_id: str


@document("club_news/{id}", access=Access(read=["viewer"]))
class ClubNews(Document):
    """Of the platform itself: no membership in a club gives a role there."""

    id: str


CLASSES: Final[list[type[Document]]] = [Club, ClubMember, ClubNote, ClubPlan, ClubNews]
MEMBERS: Final = [
    ClubMember(user_id="vera", club_id="acme", role="viewer"),
    ClubMember(user_id="olga", club_id="acme", role="owner"),
    ClubMember(user_id="olga", club_id="other", role="viewer"),
    ClubMember(user_id="sam", club_id="acme", role="owner", status="suspended"),
    ClubMember(user_id="paul", club_id="-", role="owner"),
]
PEOPLE: Final = ("vera", "olga", "sam", "paul", "eve")


def _stored(tenant_id: str) -> list[Document]:
    notes: list[Document] = [ClubNote(id=f"n-{tenant_id}", club_id=tenant_id)]
    notes.append(ClubPlan(id=f"p-{tenant_id}", club_id=tenant_id))
    return notes


async def _fill(store: Store) -> None:
    await store.migrate()
    for member in MEMBERS:
        await store.tenant(member.club_id).commit(create(member))
    for tenant_id in TENANTS:
        await store.tenant(tenant_id).commit(*(create(one) for one in _stored(tenant_id)))
    await store.commit(create(ClubNews(id="news")))


async def _allowed(store: Store, user_id: str, doc: Document, tenant_id: str) -> bool:
    """What the gate of a route in this tenant allows."""
    caller = await Roles(store, ClubMember).enter(Caller(user_id=user_id), tenant_id)
    try:
        Gate(store.tenant(tenant_id), caller).check("read", old=doc)
    except ForbiddenError:
        return False
    return True


@pytest.fixture(scope="module")
def judged(guarded_firestore: GuardedFirestoreFactory) -> GuardedFirestore | EmulatorMissingError:
    found = guarded_firestore(export([schema_of(cls) for cls in CLASSES], "firestore-rules"))
    if isinstance(found, GuardedFirestore):
        for doc in (*MEMBERS, *(one for tenant in TENANTS for one in _stored(tenant)), ClubNews(id="news")):
            schema = schema_of(type(doc))
            schema.assign_id(doc)
            found.firestore.seed(schema.path.document((doc.id,), "dev"), schema.to_fields(doc))  # type: ignore[attr-defined]
    return found


async def test_firestore_rules_allow_what_the_gate_allows(
    request: pytest.FixtureRequest, judged: GuardedFirestore | EmulatorMissingError, sqlite_url: str
) -> None:
    guarded = require_emulator(request, judged)
    store = await open_store(sqlite_url, CLASSES)
    try:
        await _fill(store)
        decisions = []
        for user_id, tenant_id in product(PEOPLE, TENANTS):
            token = person(user_id, guarded.project)
            for doc in (*_stored(tenant_id), *([ClubNews(id="news")] if tenant_id == "-" else [])):
                path = schema_of(type(doc)).path.document((doc.id,), "dev")  # type: ignore[attr-defined]
                allowed = await _allowed(store, user_id, doc, tenant_id)
                decisions.append(allowed)
                assert guarded.firestore.get(path, token) == allowed, (user_id, path)
        assert {True, False} == set(decisions)
    finally:
        await store.close()


@pytest.fixture
async def postgres_store(postgres_url: str) -> AsyncIterator[tuple[Store, Any]]:
    store = await open_store(postgres_url, CLASSES)
    await _fill(store)
    connection = await asyncpg.connect(postgres_url)
    yield store, connection
    await connection.close()
    await store.close()


async def test_row_level_security_shows_what_the_gate_allows(postgres_store: tuple[Store, Any]) -> None:
    store, connection = postgres_store
    for user_id, tenant_id in product(PEOPLE, TENANTS):
        caller = await Roles(store, ClubMember).enter(Caller(user_id=user_id), tenant_id)
        session = {"user": user_id, "tenant": tenant_id, "role": caller.roles.get(tenant_id, "")}
        async with connection.transaction():
            for name, value in session.items():
                await connection.execute("SELECT set_config($1, $2, true)", f"holdfast.{name}", value)
            await connection.execute("SET LOCAL ROLE holdfast_app")
            for doc in _stored(tenant_id):
                table = schema_of(type(doc)).path.table("dev")
                shown = {row["_key"] for row in await connection.fetch(f'SELECT _key FROM "{table}"')}
                allowed = await _allowed(store, user_id, doc, tenant_id)
                assert shown == ({doc.id} if allowed else set()), (session, table)  # type: ignore[attr-defined]
