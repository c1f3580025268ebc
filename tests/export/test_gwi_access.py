"""The documents of gwi: Firestore rules and row-level security allow what its access table and roles do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from typing import Any, Final

import asyncpg
import pytest

from holdfast.app import open_store
from holdfast.kit.access import User
from holdfast.model import Caller, Document, schema_of
from holdfast.model.export import export
from holdfast.model.permission import permits
from holdfast.services.gwi.models import DOCUMENTS
from holdfast.services.gwi.models.tenants import Installation, Member
from holdfast.store import create
from holdfast.store.sql.dialect import quote
from holdfast.testing import EmulatorMissingError
from tests.export.conftest import GuardedFirestore, GuardedFirestoreFactory, require_emulator
from tests.export.firestore_rest import person
from tests.http.tenant_documents import NOW, sample_document

HOME, AWAY = "gh-org-1", "gh-org-2"
# Name, tenant, role, and whether the membership counts.
PEOPLE: Final[list[tuple[str, str, Any, bool]]] = [
    *((role, HOME, role, True) for role in ("viewer", "developer", "admin", "owner")),
    ("elsewhere", AWAY, "owner", True),
    ("suspended", HOME, "owner", False),
    ("stranger", "", "", False),
]
TENANTED: Final = [cls for cls in DOCUMENTS if schema_of(cls).tenant is not None]


def _sample(cls: type[Document], tenant_id: str) -> Document:
    made = sample_document(cls, tenant_id, f"of-{tenant_id}")
    if isinstance(made, Installation):
        made.installation_id = int(tenant_id[-1])
    schema_of(cls).assign_id(made)
    return made


SAMPLES: Final = {
    (cls, tenant_id): _sample(cls, tenant_id) for cls, tenant_id in product(TENANTED, (HOME, AWAY))
}


def _members() -> list[Member]:
    return [
        Member(
            user_id=name, tenant_id=tenant_id, role=role, status="active" if counts else "suspended",
            created_at=NOW, updated_at=NOW,
        )
        for name, tenant_id, role, counts in PEOPLE
        if tenant_id
    ]  # fmt: skip


def _ids(doc: Document) -> tuple[str, ...]:
    return tuple(getattr(doc, name) for name in schema_of(type(doc)).path.parameters)


def _path(doc: Document) -> str:
    return schema_of(type(doc)).path.document(_ids(doc), "dev")


def _caller(name: str, tenant_id: str, role: str, counts: bool) -> Caller:
    return Caller(user_id=name, roles={tenant_id: role} if counts else {})


@pytest.fixture(scope="module")
def judged(guarded_firestore: GuardedFirestoreFactory) -> GuardedFirestore | EmulatorMissingError:
    classes: list[type[Document]] = [*DOCUMENTS, User]
    found = guarded_firestore(export([schema_of(cls) for cls in classes], "firestore-rules"))
    if isinstance(found, GuardedFirestore):
        documents: list[Document] = [*SAMPLES.values(), *_members()]
        for doc in documents:
            schema_of(type(doc)).assign_id(doc)
            found.firestore.seed(_path(doc), schema_of(type(doc)).to_fields(doc))
    return found


def test_firestore_rules_allow_what_the_roles_allow(
    request: pytest.FixtureRequest, judged: GuardedFirestore | EmulatorMissingError
) -> None:
    guarded = require_emulator(request, judged)
    seen = set()
    for (cls, tenant_id), one in product(SAMPLES, PEOPLE):
        doc, schema, token = SAMPLES[cls, tenant_id], schema_of(cls), person(one[0], guarded.project)
        caller = _caller(*one)
        reads = permits(schema, caller, action="read", old=doc)
        assert guarded.firestore.get(_path(doc), token) == reads, (one, "read", _path(doc))
        writes = permits(schema, caller, action="update", old=doc, new=doc) and not schema.append_only
        written = guarded.firestore.put(_path(doc), schema.to_fields(doc), token=token, exists=True)
        assert written == writes, (one, "update", _path(doc))
        seen.add((reads, writes))
    assert seen == {(True, True), (True, False), (False, False)}


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    store = await open_store(postgres_url, DOCUMENTS)
    try:
        await store.migrate()
        for (_, tenant_id), doc in SAMPLES.items():
            await store.tenant(tenant_id).commit(create(doc))
    finally:
        await store.close()
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def test_row_level_security_shows_what_the_roles_allow(connection: Any) -> None:
    for one in PEOPLE:
        await _check_sessions(connection, one)


async def _check_sessions(connection: Any, one: tuple[str, str, str, bool]) -> None:
    caller = _caller(*one)
    for tenant_id in (HOME, AWAY):
        session = {"user": one[0], "tenant": tenant_id, "role": caller.roles.get(tenant_id, "")}
        async with connection.transaction():
            for name, value in session.items():
                await connection.execute("SELECT set_config($1, $2, true)", f"holdfast.{name}", value)
            await connection.execute("SET LOCAL ROLE holdfast_app")
            for cls in TENANTED:
                doc, table = SAMPLES[cls, tenant_id], quote(schema_of(cls).path.table("dev"))
                shown = len(await connection.fetch(f"SELECT _key FROM {table}"))
                allowed = permits(schema_of(cls), caller, action="read", old=doc)
                assert shown == int(allowed), (session, table)
