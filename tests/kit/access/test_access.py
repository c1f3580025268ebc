"""Who may do what, on every engine."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import (
    BadQueryError,
    DeclarationError,
    ForbiddenError,
    NotFoundError,
    VersionConflictError,
)
from holdfast.kit import NO_TENANT
from holdfast.kit.access import ApiToken, Gate, Roles, Setup, User, Users
from holdfast.kit.access.authorization import check_act
from holdfast.model import ANONYMOUS, SERVICE, Caller, CompositeId, Document, Membership, UlidId, document
from holdfast.store import PRESENT, Fence, Increment, Query, Store, check, create, delete, patch, put, upsert
from holdfast.testing import ManualClock
from tests.kit.access.notes import Member, Note

DOCUMENTS: list[type[Document]] = [Note, Member, ApiToken, User, Setup]


def person(role: str = "", user_id: str = "ann", tenant_id: str = "acme") -> Caller:
    return Caller(user_id=user_id, roles={tenant_id: role} if role else {})


async def test_a_refusal_says_what_is_needed_and_what_the_caller_has(acme: Store) -> None:
    with pytest.raises(ForbiddenError) as refused:
        await Gate(acme, person("viewer", "bob")).require("update", Note, "n1")
    assert refused.value.needs == ("self:owner_id", "admin")
    assert refused.value.has == "viewer"
    assert refused.value.message == "update of Note needs self:owner_id or admin; bob has viewer in acme"
    with pytest.raises(ForbiddenError, match="an unknown caller has no role"):
        await Gate(acme, ANONYMOUS).require("read", Note, "n1")


async def test_who_may_gets_the_document(acme: Store) -> None:
    found = await Gate(acme, person("viewer")).require("read", Note, "n1")
    assert found.doc == Note(id="n1")
    with pytest.raises(NotFoundError):
        await Gate(acme, person("owner")).require("read", Note, "n2")
    with pytest.raises(ForbiddenError):
        await Gate(acme, person("owner", tenant_id="other")).require("read", Note, "n1")


async def test_a_page_with_something_unreadable_is_refused_whole(acme: Store, kit_store: Store) -> None:
    mine = Query(Note).where("owner_id", "==", "ann")
    assert len((await Gate(acme, person("viewer")).query(mine)).docs) == 1
    with pytest.raises(ForbiddenError):
        await Gate(acme, person()).query(mine)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("", set()),
        ("viewer", set()),
        ("developer", {"create", "put new", "upsert new"}),
        ("admin", {"create", "put new", "upsert new", "patch", "put", "upsert", "delete"}),
    ],
)
async def test_every_way_to_write_is_judged(acme: Store, role: str, allowed: set[str]) -> None:
    gate = Gate(acme, person(role, "bob"))
    ways = {
        "create": create(Note(id="c")),
        "put new": put(Note(id="p")),
        "upsert new": upsert(Note(id="u"), {"likes": Increment(1)}),
        "patch": patch(Note, "n1", changes={"text": "new"}),
        "put": put(Note(id="n1", text="put")),
        "upsert": upsert(Note(id="n1"), {"likes": Increment(1)}),
        "delete": delete(Note, "n1"),
    }
    done = set()
    for name, write in ways.items():
        before = await acme.get_many(Note, ["n1", "c", "p", "u"])
        try:
            await gate.commit(write)
            done.add(name)
        except ForbiddenError:
            assert await acme.get_many(Note, ["n1", "c", "p", "u"]) == before
    assert done == allowed


async def test_one_refused_write_refuses_the_commit(acme: Store) -> None:
    gate = Gate(acme, person("developer", "bob"))
    with pytest.raises(ForbiddenError):
        await gate.commit(create(Note(id="n2")), delete(Note, "n1"))
    assert await acme.get(Note, "n2") is None


async def test_nobody_writes_themselves_into_a_document_or_gives_one_away(acme: Store) -> None:
    with pytest.raises(ForbiddenError):
        await Gate(acme, person("viewer", "bob")).commit(patch(Note, "n1", changes={"owner_id": "bob"}))
    with pytest.raises(ForbiddenError):
        await Gate(acme, person("viewer", "ann")).commit(patch(Note, "n1", changes={"owner_id": "bob"}))
    await Gate(acme, person("viewer", "ann")).commit(patch(Note, "n1", changes={"text": "mine"}))


async def test_what_was_judged_is_what_is_written(acme: Store) -> None:
    """A write that comes between the judgement and the commit makes the gate judge again."""
    gate = Gate(acme, person("viewer", "ann"))
    given_away = False

    class Meddling(Store):
        async def commit(self, *writes: Any) -> Any:
            nonlocal given_away
            if not given_away:
                given_away = True
                await acme.commit(patch(Note, "n1", changes={"owner_id": "bob"}))
            return await super().commit(*writes)

    gate = Gate(Meddling(acme.engine, clock=acme.clock, tenant="acme"), person("viewer", "ann"))
    with pytest.raises(ForbiddenError):
        await gate.commit(patch(Note, "n1", changes={"text": "late"}, expect=PRESENT))
    found = await acme.get(Note, "n1")
    assert found is not None
    assert (found.doc.owner_id, found.doc.text) == ("bob", "")


async def test_expectations_of_the_writer_hold_too(acme: Store) -> None:
    gate = Gate(acme, person("admin"))
    seen = await gate.require("read", Note, "n1")
    await gate.commit(put(Note(id="n1", text="a"), seen.unchanged))
    with pytest.raises(VersionConflictError):
        await gate.commit(put(Note(id="n1", text="b"), seen.unchanged))
    with pytest.raises(NotFoundError):
        await gate.commit(patch(Note, "none", changes={"text": "x"}))
    with pytest.raises(BadQueryError):
        await gate.commit(patch(Note, "n1", changes={"text": "x"}, expect=Fence(0)))
    await gate.commit(check(Note, "n1"), create(Note(id="n3")))
    with pytest.raises(ForbiddenError):
        await Gate(acme, person("developer", tenant_id="x")).commit(check(Note, "n1"))


def test_acts_that_are_no_documents_need_a_role() -> None:
    check_act(SERVICE, "admin", area="channels", action="renew", tenant_id=NO_TENANT)
    check_act(person("owner"), "admin", area="channels", action="renew", tenant_id="acme")
    with pytest.raises(ForbiddenError, match="needs admin or service; ann has viewer in acme"):
        check_act(person("viewer"), "admin", area="channels", action="renew", tenant_id="acme")
    with pytest.raises(ForbiddenError):
        check_act(person("owner"), "admin", area="channels", action="renew", tenant_id="other")


async def test_a_role_counts_while_its_membership_does(kit_store: Store, clock: ManualClock) -> None:
    acme, roles = kit_store.tenant("acme"), Roles(kit_store, Member)
    await acme.commit(create(Member(user_id="ann", tenant_id="acme", role="admin")))
    caller = await roles.caller("ann", "acme", "other")
    assert caller == Caller(user_id="ann", roles={"acme": "admin"})
    await acme.commit(patch(Member, "ann_acme", changes={"status": "suspended"}))
    assert await roles.role("ann", "acme") == "admin", "remembered for a moment"
    clock.tick(5)
    assert await roles.role("ann", "acme") is None
    await acme.commit(patch(Member, "ann_acme", changes={"status": "active", "role": "viewer"}))
    roles.forget("ann")
    assert await roles.role("ann", "acme") == "viewer"
    await acme.commit(patch(Member, "ann_acme", changes={"role": "emperor"}))
    roles.forget("ann")
    assert await roles.role("ann", "acme") is None, "no such role"


async def test_ids_that_are_spelled_alike_give_nobody_anothers_role(kit_store: Store) -> None:
    await kit_store.tenant("b_c").commit(create(Member(user_id="a", tenant_id="b_c", role="owner")))
    roles = Roles(kit_store, Member)
    assert await roles.role("a", "b_c") == "owner"
    assert await roles.role("a_b", "c") is None


async def test_the_platforms_users_are_a_membership(kit_store: Store) -> None:
    users, roles = Users(kit_store), Roles(kit_store, User)
    await users.add("ann", role="admin", tenant_id="acme")
    assert await roles.role("ann", "acme") == "admin"
    assert await roles.role("ann", "other") is None
    assert await roles.role("bob", "acme") is None
    await users.disable("ann")
    roles.forget("ann")
    assert await roles.role("ann", "acme") is None


async def test_an_administrator_of_the_platform_has_that_role_in_every_tenant(acme: Store) -> None:
    stored = await Gate(acme, person("admin", tenant_id="-")).require("delete", Note, "n1")
    assert stored.doc == Note(id="n1")
    with pytest.raises(ForbiddenError):
        await Gate(acme, person("developer", tenant_id="-")).require("read", Note, "n1")


@pytest.mark.parametrize("id", [CompositeId("tenant_id", "user_id"), UlidId()])
def test_a_membership_that_one_lookup_can_not_find_is_refused(id: Any) -> None:
    with pytest.raises(DeclarationError, match="CompositeId"):

        @document(
            "members/{id}", id=id, membership=Membership(user="user_id", tenant="tenant_id", role="role")
        )
        class Lost(Document):
            id: str = ""
            user_id: str
            tenant_id: str
            role: str


async def test_roles_need_a_declared_membership(kit_store: Store) -> None:
    with pytest.raises(DeclarationError, match="membership"):
        Roles(kit_store, Note)
