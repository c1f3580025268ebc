"""`holdfast schema export` for what is installed by default, and what its access rules let people read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import jsonschema
import pytest

from holdfast.cli.schema import ALL_FORMATS
from holdfast.config import load_config
from holdfast.console import routes
from holdfast.http.app import create_app
from holdfast.http.guard import declared_routes
from holdfast.kit import NO_TENANT
from holdfast.kit.access import ApiToken, Session, SignInLink, User, UserRole
from holdfast.kit.audit import AuditEvent
from holdfast.kit.channels import Channel, Watch
from holdfast.kit.connections import Connection, Consent
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.metering import Allowance, UsageSum
from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint, EndpointNotice
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.model import ANONYMOUS, SERVICE, Caller, Document, schema_of
from holdfast.model.access import ROLES
from holdfast.model.export import export
from holdfast.model.path import join_key
from holdfast.runtime import Runtime, documents_of, find_services
from holdfast.runtime.document_registry import hidden_fields
from holdfast.services.calendar_sync.models import CalendarState, ChannelEvent, SyncedEvent, WatchChannel
from holdfast.services.gwi.models.tenants import Member, Repo, Tenant, UserProfile
from holdfast.services.renewals.models import (
    CalculationJob,
    LeaseRow,
    Property,
    PropertyRules,
    Resident,
    RiskScore,
    RmsEndpoint,
    SourceState,
    TriggerJob,
)
from holdfast.store import Catalog, Store, postgres
from holdfast.store.sql.dialect import quote
from holdfast.testing import EmulatorMissingError
from tests.cli.terminal import typed
from tests.export.conftest import GuardedFirestore, GuardedFirestoreFactory, require_emulator
from tests.export.firestore_rest import person
from tests.export.typescript_compiler import compile_typescript

HOME, AWAY = "acme", "other"
THEN = datetime(2026, 3, 1, tzinfo=UTC)
CLASSES = documents_of(find_services())
SCHEMAS = [schema_of(cls) for cls in CLASSES]
# Name, tenant, role, and whether the person is disabled.
PEOPLE: list[tuple[str, str, UserRole, bool]] = [
    *((role, HOME, role, False) for role in ("viewer", "developer", "admin", "owner")),
    ("owner-elsewhere", AWAY, "owner", False),
    ("platform-viewer", NO_TENANT, "viewer", False),
    ("platform-admin", NO_TENANT, "admin", False),
    ("disabled", HOME, "owner", True),
]
# What holds secrets, or only means something to the process that wrote it.
CLOSED: list[type[Document]] = [
    ApiToken, Connection, Consent, Endpoint, IdempotencyDocument, LeaseDocument, RmsEndpoint, Session,
    SignInLink, User,
]  # fmt: skip
# Those that people write as well, as the data model of their service says.
WRITERS: dict[type[Document], set[str]] = {
    Tenant: {"admin"}, Repo: {"admin"}, Member: {"admin"}, UserProfile: {"self:id"},
}  # fmt: skip
# Routes and pages that show documents as they are stored.
SHOWN: dict[str, list[type[Document]]] = {
    "/api/v1/deliveries": [Delivery],
    "/api/v1/dead-letters": [DeadLetter],
    "/api/v1/endpoints/{outbox}/{endpoint_id}": [EndpointNotice],
    "/api/v1/schedules": [Schedule],
    "/console/schedules": [Schedule, SlotRun],
    "/api/v1/usage": [UsageSum],
    "/api/v1/usage/allowances": [Allowance],
    "/api/v1/channels": [Channel, Watch],
    "/api/v1/audit": [AuditEvent],
    "/calendar-sync/admin/channel-status": [WatchChannel],
    "/console/calendar-sync/calendars/{calendar_id}": [CalendarState, SyncedEvent, ChannelEvent],
    "/renewals/api/v1/properties/{property_id}/renewal-risk": [Property, RiskScore],
    "/renewals/api/v1/properties/{property_id}/rules": [PropertyRules],
    "/renewals/api/v1/jobs/{job_id}": [CalculationJob],
    "/renewals/api/v1/trigger-jobs/{job_id}": [TriggerJob],
    "/renewals/api/v1/source": [SourceState],
    "/console/renewals/residents/{resident_id}": [Resident, LeaseRow],
}


def _exported(folder: Path, format: str) -> str:
    done = typed(folder, "schema", "export", "--format", format, HOLDFAST_HOME=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_document_declares_its_access(cls: type[Document]) -> None:
    assert schema_of(cls).declared.access is not None


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_only_the_service_writes(cls: type[Document]) -> None:
    access = schema_of(cls).access
    assert {*access.create, *access.update, *access.delete} == {"service", *WRITERS.get(cls, ())}


def test_documents_with_secrets_are_the_services_alone() -> None:
    hidden = hidden_fields(find_services())
    for cls in {*CLOSED, *hidden}:
        assert schema_of(cls).access.read == ("service",), cls


async def test_a_document_is_read_by_the_role_that_its_route_needs(tmp_path: Path) -> None:
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}))
    try:
        app = create_app(runtime, more=routes(runtime)).app
        needs = {
            path.replace(":str", ""): handler.opt["needs"]
            for path, method, handler in declared_routes(app)
            if method == "GET"
        }
    finally:
        await runtime.close()
    for path, classes in SHOWN.items():
        for cls in classes:
            weakest = next(role for role in ROLES if role in schema_of(cls).access.read)
            assert weakest == needs[path], (path, cls)


@pytest.mark.parametrize("format", ALL_FORMATS)
def test_every_format_is_exported(tmp_path: Path, format: str) -> None:
    assert _exported(tmp_path, format).endswith("\n")


def test_the_sqlite_statements_run_and_make_every_table(tmp_path: Path) -> None:
    database = apsw.Connection(":memory:")
    database.execute(_exported(tmp_path, "sql-sqlite"))
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    assert {schema.path.table("dev") for schema in SCHEMAS} <= tables


async def test_the_postgres_statements_run_and_protect_every_table(tmp_path: Path, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(_exported(tmp_path, "sql-postgres"))
        rows = await connection.fetch("SELECT relname FROM pg_class WHERE relkind = 'r' AND relrowsecurity")
    finally:
        await connection.close()
    assert {schema.path.table("dev") for schema in SCHEMAS} <= {row["relname"] for row in rows}


def test_the_firestore_indexes_name_collections_and_fields(tmp_path: Path) -> None:
    exported = json.loads(_exported(tmp_path, "firestore-indexes"))
    groups = {schema.path.group("dev") for schema in SCHEMAS}
    assert exported["indexes"]
    for index in exported["indexes"]:
        assert index["collectionGroup"] in groups
        assert index["queryScope"] in ("COLLECTION", "COLLECTION_GROUP")
        assert len(index["fields"]) > 1


def test_the_json_schema_is_one_and_has_every_document(tmp_path: Path) -> None:
    exported = json.loads(_exported(tmp_path, "json-schema"))
    jsonschema.Draft202012Validator.check_schema(exported)
    assert {cls.__name__ for cls in CLASSES} <= set(exported["$defs"])


def test_the_typescript_compiles_and_has_every_document(tmp_path: Path, tsc: Path) -> None:
    exported = _exported(tmp_path, "typescript")
    assert all(f"export interface {cls.__name__} " in exported for cls in CLASSES)
    done = compile_typescript(tsc, tmp_path, documents=exported)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_markdown_has_a_section_for_every_document(tmp_path: Path) -> None:
    exported = _exported(tmp_path, "markdown")
    assert all(f"\n## {cls.__name__}\n" in exported for cls in CLASSES)


def _ids(cls: type[Document], tenant_id: str) -> tuple[str, ...]:
    schema = schema_of(cls)
    return tuple(
        tenant_id if name == schema.declared.tenant else f"{name}-of-{tenant_id}"
        for name in schema.path.parameters
    )


def _tenants(cls: type[Document]) -> list[str]:
    return [HOME, AWAY, NO_TENANT] if schema_of(cls).tenant else [NO_TENANT]


def _may_read(cls: type[Document], caller: Caller, tenant_id: str) -> bool:
    schema = schema_of(cls)
    own = tenant_id if schema.tenant else None
    return schema.access.allows(caller, "read", tenant=own, fields={})


@pytest.fixture(scope="module")
def _guarded(guarded_firestore: GuardedFirestoreFactory) -> GuardedFirestore | EmulatorMissingError:
    found = guarded_firestore(export(SCHEMAS, "firestore-rules"))
    if isinstance(found, GuardedFirestore):
        for cls in CLASSES:
            schema = schema_of(cls)
            for tenant_id in _tenants(cls):
                fields = {schema.tenant.stored: tenant_id} if schema.tenant else {"stored": True}
                found.firestore.seed(schema.path.document(_ids(cls, tenant_id), "dev"), fields)
        for name, tenant_id, role, disabled in PEOPLE:
            user = User(id=name, tenant_id=tenant_id, role=role, created_at=THEN)
            user.disabled_at = THEN if disabled else None
            found.firestore.seed(f"holdfast_users/{name}", schema_of(User).to_fields(user))
    return found


@pytest.fixture
def guarded(
    request: pytest.FixtureRequest, _guarded: GuardedFirestore | EmulatorMissingError
) -> GuardedFirestore:
    return require_emulator(request, _guarded)


def _callers(project: str) -> Iterator[tuple[str, Caller, str | None]]:
    yield "anonymous", ANONYMOUS, None
    yield "stranger", Caller(user_id="stranger"), person("stranger", project)
    yield "service", SERVICE, person("robot", project, service=True)
    for name, tenant_id, role, disabled in PEOPLE:
        roles = {} if disabled else {tenant_id: role}
        yield name, Caller(user_id=name, roles=roles), person(name, project)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_exported_firestore_rules_let_members_read_what_is_declared(
    guarded: GuardedFirestore, cls: type[Document]
) -> None:
    schema, tenant_id = schema_of(cls), _tenants(cls)[0]
    path = schema.path.document(_ids(cls, tenant_id), "dev")
    where = (schema.tenant.stored, tenant_id) if schema.tenant else None
    for name, caller, token in _callers(guarded.project):
        allowed = _may_read(cls, caller, tenant_id)
        assert guarded.firestore.get(path, token) == allowed, (name, "get", path)
        listed = guarded.firestore.list(path.rpartition("/")[0], where, token=token)
        assert listed == allowed, (name, "list", path)


def test_a_member_reads_scores_of_their_own_tenant_alone(guarded: GuardedFirestore) -> None:
    def may(name: str, tenant_id: str) -> bool:
        path = schema_of(RiskScore).path.document(_ids(RiskScore, tenant_id), "dev")
        return guarded.firestore.get(path, person(name, guarded.project))

    assert [may(name, HOME) for name in ("viewer", "owner", "platform-admin")] == [True] * 3
    assert [may(name, HOME) for name in ("stranger", "disabled", "owner-elsewhere")] == [False] * 3
    assert [may(name, AWAY) for name in ("viewer", "owner", "platform-viewer")] == [False] * 3
    assert [may(name, NO_TENANT) for name in ("platform-viewer", "platform-admin")] == [True] * 2


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[Any]:
    store = Store(await postgres.connect(postgres_url, Catalog(CLASSES)))
    await store.migrate()
    await store.close()
    connection = await asyncpg.connect(postgres_url)
    try:
        for cls in CLASSES:
            for tenant_id in _tenants(cls):
                await _insert(connection, cls, tenant_id)
        yield connection
    finally:
        await connection.close()


async def _insert(connection: Any, cls: type[Document], tenant_id: str) -> None:
    schema = schema_of(cls)
    values: dict[str, Any] = {"_key": _key(cls, tenant_id), "_version": 1, "_body": "{}"}
    values |= {schema.tenant.stored: tenant_id} if schema.tenant else {}
    if schema.path.nested:
        values["_parent"] = join_key(_ids(cls, tenant_id)[:-1], schema.path.parameters[:-1])
    names = ", ".join(map(quote, values))
    marks = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    table = quote(schema.path.table("dev"))
    await connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", *values.values())


def _key(cls: type[Document], tenant_id: str) -> str:
    return join_key(_ids(cls, tenant_id), schema_of(cls).path.parameters)


async def test_row_level_security_lets_members_read_what_is_declared(connection: Any) -> None:
    sessions = [(tenant_id, name, role) for name, tenant_id, role, disabled in PEOPLE if not disabled]
    for session in [*sessions, (HOME, "stranger", ""), (HOME, "", ""), ("", "", "")]:
        tenant_id, user, role = session
        caller = Caller(user_id=user or None, roles={tenant_id: role})
        async with connection.transaction():
            for name, value in zip(("tenant", "user", "role"), session, strict=True):
                await connection.execute("SELECT set_config($1, $2, true)", f"holdfast.{name}", value)
            await connection.execute("SET LOCAL ROLE holdfast_app")
            for cls in CLASSES:
                rows = await connection.fetch(f"SELECT _key FROM {quote(schema_of(cls).path.table('dev'))}")
                # A session is of one tenant, also that of an administrator of the platform.
                inside = [one for one in _tenants(cls) if one == tenant_id or not schema_of(cls).tenant]
                expected = {_key(cls, one) for one in inside if _may_read(cls, caller, one)}
                assert {row["_key"] for row in rows} == expected, (session, cls)
