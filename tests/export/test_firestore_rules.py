"""The exported rules, loaded into Firestore's emulator, judge exactly as the declaration does."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import DeclarationError, InvalidError
from holdfast.model import ANONYMOUS, Access, Caller, Document, Lifecycle, document, schema_of
from holdfast.model.access import Action
from holdfast.model.export import export
from holdfast.model.path import split_key
from holdfast.model.permission import permits
from holdfast.store.commit import Commit, Write, create, delete, put
from holdfast.store.write_rules import decide
from holdfast.testing import EmulatorMissingError
from tests.examples import gwi
from tests.examples.calendar_sync import WatchChannel
from tests.examples.gwi_runs import Run, RunStep
from tests.examples.gwi_samples import SAMPLES, THEN, membership
from tests.export.conftest import GuardedFirestore, GuardedFirestoreFactory, require_emulator
from tests.export.firestore_rest import Firestore, person

HOME, AWAY = "gh-org-1", "gh-org-2"
CLASSES: list[type[Document]] = [*gwi.COLLECTIONS, WatchChannel]
SCHEMAS = [schema_of(cls) for cls in CLASSES]

# Who has which role where, and whether it counts.
MEMBERS = [
    ("viewer", HOME, "viewer", "active"),
    ("developer", HOME, "developer", "active"),
    ("admin", HOME, "admin", "active"),
    ("owner", HOME, "owner", "active"),
    ("admin-elsewhere", AWAY, "admin", "active"),
    ("suspended", HOME, "owner", "suspended"),
    ("self", HOME, "viewer", "invited"),
]
PEOPLE = ["stranger", *(user for user, *_ in MEMBERS), "other-self", "impostor"]


@dataclass(frozen=True)
class Stored:
    """What `decide` is shown as stored now."""

    kept: Document
    version: int = 1

    @property
    def tenant(self) -> str | None:
        column = schema_of(type(self.kept)).tenant
        return None if column is None else column.read(self.kept)

    def document(self) -> Document:
        return self.kept


@dataclass(frozen=True)
class Judged:
    """A Firestore under the exported rules, and who can ask it."""

    firestore: Firestore
    project: str

    def callers(self) -> Iterator[tuple[str, Caller, str | None]]:
        roles: dict[str, dict[str, str]] = {}
        for user, tenant_id, role, status in MEMBERS:
            if status == "active":
                roles.setdefault(user, {})[tenant_id] = role
        yield "anonymous", ANONYMOUS, None
        for name in PEOPLE:
            yield name, Caller(user_id=name, roles=roles.get(name, {})), person(name, self.project)
        service = person("robot", self.project, service=True)
        yield "service", Caller(user_id="robot", service=True), service
        unserviced = person("robot", self.project, service=False)
        yield "service: false", Caller(user_id="robot"), unserviced


@pytest.fixture(scope="module")
def _judged(guarded_firestore: GuardedFirestoreFactory) -> GuardedFirestore | EmulatorMissingError:
    found = guarded_firestore(export(SCHEMAS, "firestore-rules"))
    if isinstance(found, GuardedFirestore):
        _keep_members(found.firestore)
    return found


@pytest.fixture
def judged(request: pytest.FixtureRequest, _judged: GuardedFirestore | EmulatorMissingError) -> Judged:
    found = require_emulator(request, _judged)
    return Judged(found.firestore, found.project)


def _keep_members(firestore: Firestore) -> None:
    for user, tenant_id, role, status in MEMBERS:
        member = membership(tenant_id, user, mark="")
        member.role, member.status = role, status  # type: ignore[assignment]
        _keep(firestore, member)
    forged = schema_of(gwi.TenantMembership).to_fields(membership(HOME, "admin", mark=""))
    firestore.seed(f"gwi_memberships/impostor_{HOME}", {**forged, "role": "owner", "status": "active"})


def _path(kept: Document) -> str:
    schema = schema_of(type(kept))
    return schema.path.document(split_key(schema.key_of(kept)), "dev")


def _keep(firestore: Firestore, kept: Document) -> None:
    firestore.seed(_path(kept), schema_of(type(kept)).to_fields(kept))


def _sample(cls: type[Document], tenant_id: str, mark: str = "old") -> Document:
    return SAMPLES[cls](tenant_id, "self", mark=mark)


def _store_takes(write: Callable[[], Write], old: Document | None) -> bool:
    """Whether the store itself, asked by a privileged handle, would do it."""
    try:
        made = write()
        decide(made, None if old is None else Stored(old), commit=Commit((made,)))
    except InvalidError:
        return False
    return True


@pytest.mark.parametrize("tenant_id", [HOME, AWAY])
@pytest.mark.parametrize("cls", gwi.COLLECTIONS, ids=lambda cls: cls.__name__)
def test_people_get_what_the_declaration_lets_them_get(
    judged: Judged, cls: type[Document], tenant_id: str
) -> None:
    kept = _sample(cls, tenant_id)
    _keep(judged.firestore, kept)
    for name, caller, token in judged.callers():
        wanted = permits(schema_of(cls), caller, action="read", old=kept)
        assert judged.firestore.get(_path(kept), token) == wanted, (name, "get", _path(kept))


@pytest.mark.parametrize("tenant_id", [HOME, AWAY])
@pytest.mark.parametrize("cls", gwi.COLLECTIONS, ids=lambda cls: cls.__name__)
def test_people_list_a_tenants_documents_as_the_declaration_lets_them(
    judged: Judged, cls: type[Document], tenant_id: str
) -> None:
    schema, kept = schema_of(cls), _sample(cls, tenant_id)
    _keep(judged.firestore, kept)
    where = (schema.tenant.stored, tenant_id) if schema.tenant else None
    if cls is gwi.User:
        where = ("id", "self")
    collection = _path(kept).rpartition("/")[0]
    across = any(index.across != "nothing" for index in schema.indexes) and schema.path.nested
    for name, caller, token in judged.callers():
        wanted = permits(schema, caller, action="read", old=kept)
        if cls is gwi.TenantMembership:
            # The list holds other people's memberships too, which only the tenant's administrators see.
            wanted = wanted and caller.user_id != "self"
        listed = judged.firestore.list(collection, where, token=token)
        assert listed == wanted, (name, "list", collection, where)
        if across:
            listed = judged.firestore.list(collection, where, token=token, everywhere=True)
            assert listed == wanted, (name, "list across parents", collection, where)


def test_people_list_their_own_memberships_and_nobody_elses(judged: Judged) -> None:
    for name, caller, token in judged.callers():
        for user in ("self", "viewer"):
            listed = judged.firestore.list("gwi_memberships", ("userId", user), token=token)
            assert listed == (caller.user_id == user), (name, user)


def test_nobody_lists_a_collection_of_many_tenants_whole(judged: Judged) -> None:
    for tenant_id in (HOME, AWAY):
        _keep(judged.firestore, _sample(Run, tenant_id))
    for name, _, token in judged.callers():
        assert not judged.firestore.list("gwi_runs", None, token=token), name


@pytest.mark.parametrize("tenant_id", [HOME, AWAY])
@pytest.mark.parametrize("cls", gwi.COLLECTIONS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("action", ["create", "update", "delete"])
def test_people_write_what_the_declaration_lets_them_write(
    judged: Judged, cls: type[Document], tenant_id: str, action: Action
) -> None:
    schema, old, new = schema_of(cls), _sample(cls, tenant_id), _sample(cls, tenant_id, "new")
    path = _path(old)
    before, after = (None, new) if action == "create" else (old, new if action == "update" else None)
    for name, caller, token in judged.callers():
        judged.firestore.remove(path) if before is None else _keep(judged.firestore, before)
        wanted = permits(schema, caller, action=action, old=before, new=after) and _store_takes(
            _writes(action, new), before
        )
        if after is None:
            done = judged.firestore.delete(path, token)
        else:
            done = judged.firestore.put(path, schema.to_fields(after), token=token, exists=before is not None)
        assert done == wanted, (name, action, path)


def _writes(action: Action, new: Document) -> Callable[[], Write]:
    if action == "create":
        return lambda: create(copy.copy(new))
    if action == "update":
        return lambda: put(copy.copy(new))
    schema = schema_of(type(new))
    return lambda: delete(type(new), *split_key(schema.key_of(new)))


def test_a_document_is_not_carried_into_another_tenant(judged: Judged) -> None:
    service = person("robot", judged.project, service=True)
    tenanted: list[type[Document]] = [Run, RunStep, gwi.Approval]
    for cls in tenanted:
        schema, kept = schema_of(cls), _sample(cls, HOME)
        _keep(judged.firestore, kept)
        moved = {**schema.to_fields(kept), "tenantId": AWAY}
        assert not judged.firestore.put(_path(kept), moved, token=service, exists=True), cls
        assert judged.firestore.put(_path(kept), schema.to_fields(kept), token=service, exists=True), cls


def test_a_stored_id_is_the_one_in_the_path(judged: Judged) -> None:
    service = person("robot", judged.project, service=True)
    forgeries: list[tuple[type[Document], str, object]] = [
        (gwi.Repo, "tenantId", AWAY),
        (gwi.Repo, "id", "gh-repo-1"),
        (Run, "id", "run-2"),
        (gwi.Installation, "installationId", 1),
        (gwi.TenantMembership, "userId", "viewer"),
    ]
    for cls, field, value in forgeries:
        schema, kept = schema_of(cls), _sample(cls, HOME)
        judged.firestore.remove(_path(kept))
        forged = {**schema.to_fields(kept), field: value}
        assert not judged.firestore.put(_path(kept), forged, token=service, exists=False), (cls, field)
        assert judged.firestore.put(_path(kept), schema.to_fields(kept), token=service, exists=False), cls


def _channel(status: Any, **changes: Any) -> WatchChannel:
    given: dict[str, Any] = {
        "channel_id": "calendar-sync-a-1", "resource_id": "r", "calendar_id": "a@example.org",
        "expiration": 1, "registered_at": 1, "last_updated_at": 1, "status": status,
    }  # fmt: skip
    return WatchChannel(**{**given, **changes})


def _in_state(cls: type[Document], state: str) -> Document:
    kept = _channel(state) if cls is WatchChannel else _sample(cls, HOME)
    setattr(kept, schema_of(cls).lifecycle.field, state)  # type: ignore[union-attr]
    return kept


@pytest.mark.parametrize("cls", [Run, RunStep, gwi.Signal, WatchChannel], ids=lambda c: c.__name__)
def test_states_start_and_move_as_the_lifecycle_says(judged: Judged, cls: type[Document]) -> None:
    schema = schema_of(cls)
    assert isinstance(schema.lifecycle, Lifecycle)
    service = person("robot", judged.project, service=True)
    for state in sorted(schema.lifecycle.states):
        new = _in_state(cls, state)
        judged.firestore.remove(_path(new))
        started = judged.firestore.put(_path(new), schema.to_fields(new), token=service, exists=False)
        assert started == _store_takes(_writes("create", new), None), (cls, state)
    for before, after in itertools.product(sorted(schema.lifecycle.states), repeat=2):
        old, new = _in_state(cls, before), _in_state(cls, after)
        _keep(judged.firestore, old)
        moved = judged.firestore.put(_path(new), schema.to_fields(new), token=service, exists=True)
        assert moved == _store_takes(_writes("update", new), old), (cls, before, after)


def test_immutable_fields_stay(judged: Judged) -> None:
    service = person("robot", judged.project, service=True)
    old = _channel("active")
    for changes in ({"registered_at": 2}, {"expiration": 2}, {"last_updated_at": 2, "registered_at": 3}):
        _keep(judged.firestore, old)
        new = _channel("active", **changes)
        kept = judged.firestore.put(
            _path(new), schema_of(WatchChannel).to_fields(new), token=service, exists=True
        )
        assert kept == _store_takes(_writes("update", new), old), changes
    run = _sample(Run, HOME)
    _keep(judged.firestore, run)
    late = {**schema_of(Run).to_fields(run), "createdAt": THEN + timedelta(days=1)}  # type: ignore[arg-type]
    assert not judged.firestore.put(_path(run), late, token=service, exists=True)


def test_what_is_not_declared_is_closed(judged: Judged) -> None:
    judged.firestore.seed("elsewhere/1", {"a": 1})
    for name, _, token in judged.callers():
        assert not judged.firestore.get("elsewhere/1", token), name


def test_roles_need_a_collection_that_gives_them() -> None:
    with pytest.raises(DeclarationError, match="membership=Membership"):
        export([schema_of(Run)], "firestore-rules")


def test_public_and_signed_in_and_the_environment_stand_in_the_rules() -> None:
    @document("{env}-notes/{id}", access=Access(read=["public"], write=["signed_in"]))
    class Note(Document):
        id: str

    rules = export([schema_of(Note)], "firestore-rules", env="staging")
    assert "match /staging-notes/{id} {\n      allow read: if true;\n" in rules
    assert "allow delete: if signedIn();" in rules
