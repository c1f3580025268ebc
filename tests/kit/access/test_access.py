"""Who may do what, on every engine."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import pytest

from holdfast.errors import (
    BadQueryError,
    DeclarationError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    VersionConflictError,
    WrongTenantError,
)
from holdfast.kit.access import ApiToken, Gate, Roles, TokenCaller, Tokens
from holdfast.model import (
    ANONYMOUS,
    SERVICE,
    Access,
    Caller,
    Claim,
    Document,
    Index,
    Joined,
    Membership,
    document,
)
from holdfast.store import PRESENT, Fence, Increment, Query, Store, check, create, delete, patch, put, upsert
from holdfast.testing import ManualClock


@document(
    "{env}-notes/{id}",
    tenant="tenant_id",
    indexes=[Index("owner_id")],
    claim=Claim(due="due_at", fence="fence"),
    access=Access(read=["viewer"], create=["developer"], update=["self:owner_id", "admin"], delete=["admin"]),
)
class Note(Document):
    id: str
    tenant_id: str = "acme"
    owner_id: str = "ann"
    text: str = ""
    likes: int = 0
    due_at: datetime | None = None
    fence: int = 0


@document(
    "members/{id}",
    id=Joined("user_id", "tenant_id"),
    tenant="tenant_id",
    membership=Membership(user="user_id", tenant="tenant_id", role="role", when={"status": "active"}),
)
class Member(Document):
    id: str = ""
    user_id: str
    tenant_id: str
    role: str
    status: Literal["active", "suspended"] = "active"


DOCUMENTS: list[type[Document]] = [Note, Member, ApiToken]


def person(role: str = "", user_id: str = "ann", tenant_id: str = "acme") -> Caller:
    return Caller(user_id=user_id, roles={tenant_id: role} if role else {})


@pytest.fixture
async def acme(kit_store: Store) -> Store:
    store = kit_store.tenant("acme")
    await store.commit(create(Note(id="n1")))
    return store


# -- the gate -------------------------------------------------------------------------------------


async def test_a_refusal_says_what_is_needed_and_what_the_caller_has(acme: Store) -> None:
    with pytest.raises(ForbiddenError) as refused:
        await Gate(acme, person("viewer", "bob")).require("update", Note, "n1")
    assert refused.value.needs == ("self:owner_id", "admin")
    assert refused.value.has == "viewer"
    assert refused.value.message == "update of Note needs self:owner_id or admin; bob is viewer in acme"
    with pytest.raises(ForbiddenError, match="an unknown caller is nothing"):
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


async def test_acts_that_are_no_documents_need_a_role(acme: Store) -> None:
    Gate(acme, SERVICE).require_act("channels", "renew", role="admin")
    Gate(acme, person("owner")).require_act("channels", "renew", role="admin", tenant_id="acme")
    with pytest.raises(ForbiddenError, match="needs admin or service; ann is viewer in acme"):
        Gate(acme, person("viewer")).require_act("channels", "renew", role="admin", tenant_id="acme")
    with pytest.raises(ForbiddenError):
        Gate(acme, person("owner")).require_act("channels", "renew", role="admin", tenant_id="other")


# -- roles ----------------------------------------------------------------------------------------


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


async def test_roles_need_a_declared_membership(kit_store: Store) -> None:
    with pytest.raises(DeclarationError, match="membership"):
        Roles(kit_store, Note)


# -- tokens ---------------------------------------------------------------------------------------


async def _kept(store: Store, token: str) -> ApiToken:
    found = await store.privileged().get(ApiToken, token[3:19])
    assert found is not None
    return found.doc


async def test_a_token_is_shown_once_and_kept_hashed(kit_store: Store) -> None:
    tokens = Tokens(kit_store)
    token = await tokens.create("deploys", role="developer", tenant_id="acme", scopes=["notes:*"])
    assert re.fullmatch(r"hf_[a-z2-7]{64}", token)
    kept = await _kept(kit_store, token)
    assert kept.hash == hashlib.sha256(token.encode()).hexdigest()
    assert token[19:] not in msgspec.json.encode(kept).decode()
    (listed,), _ = await tokens.listed()
    assert (listed.name, listed.hash) == ("deploys", "")


async def test_a_token_lets_in_whom_it_was_made_for(acme: Store, kit_store: Store) -> None:
    tokens = Tokens(kit_store)
    token = await tokens.create("deploys", role="developer", tenant_id="acme", scopes=["notes:create"])
    caller = await tokens.verify(token)
    assert isinstance(caller, TokenCaller)
    assert (caller.roles, caller.service, caller.scopes) == ({"acme": "developer"}, False, ("notes:create",))
    await Gate(acme, caller).commit(create(Note(id="n2")))
    with pytest.raises(ForbiddenError, match="needs the scope notes:read; it has notes:create"):
        await Gate(acme, caller).require("read", Note, "n1")
    with pytest.raises(ForbiddenError, match="needs the scope channels:renew"):
        Gate(acme, caller).require_act("channels", "renew", role="viewer", tenant_id="acme")
    service = await tokens.verify(await tokens.create("scheduler", role="service", scopes=["channels:renew"]))
    assert service is not None
    Gate(acme, service).require_act("channels", "renew", role="admin")


async def test_a_token_changed_in_any_place_lets_nobody_in(kit_store: Store) -> None:
    tokens = Tokens(kit_store)
    token = await tokens.create("one", role="viewer")
    other = await tokens.create("two", role="owner")
    for place in range(len(token)):
        changed = token[:place] + ("a" if token[place] != "a" else "b") + token[place + 1 :]
        assert await tokens.verify(changed) is None
    mixed = other[:19] + token[19:]
    for wrong in ("", "hf_", token[:-1], token + "a", mixed, token.upper(), "hf_" + "é" * 64):
        assert await tokens.verify(wrong) is None
    assert await tokens.verify(token) is not None


async def test_a_token_ends_at_its_time_and_when_it_is_revoked(kit_store: Store, clock: ManualClock) -> None:
    tokens = Tokens(kit_store)
    short = await tokens.create("short", role="viewer", expires_in_s=60)
    long = await tokens.create("long", role="viewer")
    clock.tick(59.9)
    assert await tokens.verify(short) is not None
    clock.tick(0.1)
    assert await tokens.verify(short) is None
    assert await tokens.verify(long) is not None
    await tokens.revoke(long[3:19])
    assert await tokens.verify(long) is None
    revoked_at = (await _kept(kit_store, long)).revoked_at
    clock.tick(1)
    await tokens.revoke(long[3:19])
    assert (await _kept(kit_store, long)).revoked_at == revoked_at
    with pytest.raises(NotFoundError):
        await tokens.revoke("a" * 16)
    clock.tick(91 * 86_400)
    assert await kit_store.privileged().expire(ApiToken) == 2


async def test_the_last_use_is_written_at_most_once_a_minute(kit_store: Store, clock: ManualClock) -> None:
    tokens = Tokens(kit_store)
    token = await tokens.create("busy", role="viewer")
    start, versions = clock.now(), set()
    for _ in range(130):
        await tokens.verify(token)
        found = await kit_store.privileged().get(ApiToken, token[3:19])
        assert found is not None
        versions.add(found.version)
        clock.tick(1)
    assert len(versions) == 3
    assert (await _kept(kit_store, token)).last_used_at == start + timedelta(seconds=120)


async def test_a_tenants_handle_keeps_to_its_own_tokens(kit_store: Store) -> None:
    mine, theirs = Tokens(kit_store.tenant("acme")), Tokens(kit_store.tenant("other"))
    token = await mine.create("mine", role="admin", tenant_id="acme")
    assert await theirs.verify(token) is None
    assert await theirs.listed() == ([], None)
    with pytest.raises(NotFoundError):
        await theirs.revoke(token[3:19])
    with pytest.raises(WrongTenantError):
        await mine.create("not mine", role="admin", tenant_id="other")
    with pytest.raises(ForbiddenError):
        await mine.create("all of it", role="service", tenant_id="acme")


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "x" * 101}, {"scopes": ["all"]}, {"expires_in_s": 0}, {"expires_in_s": 1e10}],
)
async def test_a_token_that_makes_no_sense_is_refused(kit_store: Store, wrong: dict[str, Any]) -> None:
    said: dict[str, Any] = {"name": "one", "role": "viewer"} | wrong
    with pytest.raises(InvalidError):
        await Tokens(kit_store).create(said.pop("name"), **said)
    assert await Tokens(kit_store).listed() == ([], None)
