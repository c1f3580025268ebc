"""People who sign in: passwords, sessions, one-time links and patience, on every engine."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import argon2
import pytest

from holdfast.errors import AlreadyExistsError, InvalidError, NotFoundError, RetryLaterError, UnverifiedError
from holdfast.kit.access import (
    LoginAttempt,
    LoginThrottle,
    Session,
    Sessions,
    Setup,
    SignInLink,
    SignInLinks,
    User,
    Users,
)
from holdfast.kit.access.login_throttle import BY_ADDRESS, BY_NAME
from holdfast.kit.access.sessions import IDLE_S, MAX_AGE_S, csrf_of
from holdfast.kit.access.sign_in_links import Redeem
from holdfast.kit.access.users import check_name
from holdfast.kit.rate_limit import RateWindow
from holdfast.store import Query, Store
from holdfast.testing import ManualClock

DOCUMENTS = [User, Setup, Session, SignInLink, RateWindow]
PASSWORD = "correct horse battery"


async def test_a_person_is_known_by_name_and_password_alone(kit_store: Store) -> None:
    users = Users(kit_store)
    await users.add("Ann@Acme.example ", role="admin", tenant_id="acme", password=PASSWORD)
    known = await users.verify("ann@acme.example", PASSWORD)
    assert known is not None
    assert (known.id, known.role, known.tenant_id) == ("ann@acme.example", "admin", "acme")
    assert "argon2id" in known.password
    assert PASSWORD not in known.password
    for name, password in (("ann@acme.example", "correct horse"), ("bob", PASSWORD), ("../ann", PASSWORD)):
        assert await users.verify(name, password) is None
    with pytest.raises(AlreadyExistsError, match="choose another name"):
        await users.add("ann@acme.example", role="viewer", password=PASSWORD)


async def test_a_person_without_a_password_has_none_that_fits(kit_store: Store) -> None:
    await Users(kit_store).add("ann", role="viewer")
    assert await Users(kit_store).verify("ann", "") is None


def test_what_ships_takes_as_much_work_as_its_library_advises() -> None:
    """The other tests hash with less; a new process hashes as people's passwords are hashed."""
    script = "from holdfast.kit.access.passwords import _hasher as h; print(h.time_cost, h.memory_cost)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    advised = argon2.PasswordHasher()
    assert done.stdout.split() == [str(advised.time_cost), str(advised.memory_cost)]


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "-", "x" * 101, "<script>"], ids=range(7))
def test_a_name_that_cant_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="a name has"):
        check_name(name)


async def test_a_weak_password_is_refused(kit_store: Store) -> None:
    with pytest.raises(InvalidError, match="10 to 500 characters"):
        await Users(kit_store).add("ann", role="viewer", password="short")


async def test_a_session_tells_who_asks_and_is_kept_as_a_hash(kit_store: Store, clock: ManualClock) -> None:
    user = await Users(kit_store).add("ann", role="viewer", tenant_id="acme", password=PASSWORD)
    cookie = await Sessions(kit_store).begin(user)
    caller = await Sessions(kit_store).verify(cookie)
    assert caller is not None
    assert (caller.user_id, caller.roles, caller.csrf) == ("user:ann", {"acme": "viewer"}, csrf_of(cookie))
    kept = (await kit_store.privileged().query(Query(Session))).docs
    assert len(kept) == 1
    assert cookie not in str(kept)
    before = kept[0].seen_at
    await clock.advance(3_600)
    assert await Sessions(kit_store).verify(cookie, by_person=False) is not None
    assert (await kit_store.privileged().query(Query(Session))).docs[0].seen_at == before
    assert await Sessions(kit_store).verify(cookie) is not None
    assert (await kit_store.privileged().query(Query(Session))).docs[0].seen_at == clock.now()
    for other in ("", "x", cookie[:-1], cookie[:-1] + ("A" if cookie[-1] != "A" else "B"), "é" * 43):
        assert await Sessions(kit_store).verify(other) is None


async def test_a_session_ends_by_rest_by_time_and_by_signing_out(
    kit_store: Store, clock: ManualClock
) -> None:
    user = await Users(kit_store).add("ann", role="viewer", password=PASSWORD)
    sessions = Sessions(kit_store)
    resting, kept_up, signed_out = [await sessions.begin(user) for _ in range(3)]
    caller = await sessions.verify(signed_out)
    assert caller is not None
    await sessions.end(caller.session_id)
    await sessions.end(caller.session_id)
    assert await sessions.verify(signed_out) is None
    await clock.advance(IDLE_S - 1)
    assert await sessions.verify(kept_up) is not None
    await clock.advance(2)
    assert await sessions.verify(resting) is None
    for _ in range(int(MAX_AGE_S / (IDLE_S / 2)) - 3):
        assert await sessions.verify(kept_up) is not None
        await clock.advance(IDLE_S / 2)
    assert await sessions.verify(kept_up) is not None
    await clock.advance(IDLE_S / 2)
    assert await sessions.verify(kept_up) is None


@pytest.mark.parametrize("how", ["disable", "set_password"])
async def test_one_write_ends_all_of_a_persons_sessions_at_once(kit_store: Store, how: str) -> None:
    users, sessions = Users(kit_store), Sessions(kit_store)
    user = await users.add("ann", role="viewer", password=PASSWORD)
    cookies = [await sessions.begin(user) for _ in range(2)]
    if how == "disable":
        await users.disable("ann")
        assert await users.verify("ann", PASSWORD) is None
    else:
        await users.set_password("ann", "another good one")
        assert await users.verify("ann", PASSWORD) is None
        assert await users.verify("ann", "another good one") is not None
    assert [await sessions.verify(cookie) for cookie in cookies] == [None, None]


async def test_disabling_somebody_who_is_not_there_says_so(kit_store: Store) -> None:
    with pytest.raises(NotFoundError, match="nobody is called 'bob'"):
        await Users(kit_store).disable("bob")


async def test_the_first_link_makes_an_owner_once_however_many_try(kit_store: Store) -> None:
    links = SignInLinks(kit_store)
    one = await links.first()
    assert one is not None
    assert await links.check(one) == ""
    tried = await asyncio.gather(
        *(links.redeem(code, name=f"p{n}", password=PASSWORD) for n, code in enumerate([one, one, one, one])),
        return_exceptions=True,
    )
    won = [each for each in tried if isinstance(each, tuple)]
    assert len(won) == 1
    assert all(isinstance(each, (tuple, UnverifiedError)) for each in tried), tried
    user, cookie = won[0]
    assert (user.role, user.tenant_id) == ("owner", "-")
    caller = await Sessions(kit_store).verify(cookie)
    assert caller is not None
    assert caller.name == user.id
    assert len((await Users(kit_store).page())[0]) == 1
    assert await links.first() is None


async def test_a_link_ends_after_an_hour_and_when_somebody_was_added_otherwise(
    kit_store: Store, clock: ManualClock
) -> None:
    links = SignInLinks(kit_store)
    code = await links.first()
    assert code is not None
    await clock.advance(3_601)
    with pytest.raises(UnverifiedError, match="create another"):
        await links.redeem(code, name="ann", password=PASSWORD)
    code = await links.first()
    assert code is not None
    await Users(kit_store).add("ann", role="admin", password=PASSWORD)
    with pytest.raises(UnverifiedError):
        await links.redeem(code, name="bob", password=PASSWORD)
    with pytest.raises(UnverifiedError):
        await links.check("nonsense")


async def test_a_weak_password_does_not_spend_a_link(kit_store: Store) -> None:
    links = SignInLinks(kit_store)
    code = await links.first()
    assert code is not None
    with pytest.raises(InvalidError):
        await links.redeem(code, name="ann", password="short")
    with pytest.raises(InvalidError):
        await links.redeem(code, name="a b", password=PASSWORD)
    assert (await links.redeem(code, name="ann", password=PASSWORD))[0].id == "ann"


async def test_a_persons_link_sets_a_password_and_ends_old_sessions(kit_store: Store) -> None:
    users, links, sessions = Users(kit_store), SignInLinks(kit_store), Sessions(kit_store)
    user = await users.add("ann", role="developer", tenant_id="acme")
    old = await sessions.begin(user)
    code = await links.create("ann")
    assert await links.check(code) == "ann"
    changed, cookie = await links.redeem(code, name="ignored", password=PASSWORD)
    assert (changed.id, changed.role) == ("ann", "developer")
    assert await sessions.verify(old) is None
    assert await sessions.verify(cookie) is not None
    with pytest.raises(UnverifiedError):
        await links.redeem(code, name="", password=PASSWORD)


@pytest.mark.parametrize("how", ["newer link", "set_password", "end_sessions", "disable"])
async def test_whatever_ends_a_persons_sessions_ends_their_links_too(kit_store: Store, how: str) -> None:
    users, links = Users(kit_store), SignInLinks(kit_store)
    await users.add("ann", role="viewer", password=PASSWORD)
    older = await links.create("ann")
    if how == "newer link":
        newer = await links.create("ann")
        await links.redeem(newer, name="", password=PASSWORD)
    elif how == "set_password":
        await users.set_password("ann", "another good one")
    elif how == "end_sessions":
        await users.end_sessions("ann")
    else:
        await users.disable("ann")
        await users.enable("ann")
    with pytest.raises(UnverifiedError):
        await links.check(older)
    with pytest.raises(UnverifiedError):
        await links.redeem(older, name="", password="a thief's password")
    assert await users.verify("ann", "a thief's password") is None
    assert await links.check(await links.create("ann")) == "ann"


async def test_a_link_redeemed_while_the_password_is_set_loses_or_wins_whole(kit_store: Store) -> None:
    users, links = Users(kit_store), SignInLinks(kit_store)
    await users.add("ann", role="viewer", password=PASSWORD)
    code = await links.create("ann")

    async def commit(user: User, redeem: Redeem) -> tuple[User, str]:
        await users.set_password("ann", "another good one")
        return await kit_store.privileged().transact(redeem)

    with pytest.raises(UnverifiedError):
        await links.redeem(code, name="", password="a thief's password", commit=commit)
    assert await users.verify("ann", "another good one") is not None


async def test_a_new_first_link_ends_the_one_of_an_earlier_start(kit_store: Store) -> None:
    links = SignInLinks(kit_store)
    older, newer = await links.first(), await links.first()
    assert older is not None
    assert newer is not None
    with pytest.raises(UnverifiedError):
        await links.check(older)
    with pytest.raises(UnverifiedError):
        await links.redeem(older, name="mallory", password=PASSWORD)
    assert not await Users(kit_store).any_exists()
    assert (await links.redeem(newer, name="ann", password=PASSWORD))[0].role == "owner"


async def test_too_many_tries_must_wait_and_a_success_forgives(kit_store: Store, clock: ManualClock) -> None:
    tries = LoginThrottle(kit_store)
    for _ in range(BY_NAME.count):
        await tries.admit("ann", "203.0.113.7")
        await clock.advance(1)
    with pytest.raises(RetryLaterError) as refused:
        await tries.admit("ann", "203.0.113.8")
    assert refused.value.after_s == BY_NAME.period_s - BY_NAME.count
    await clock.advance(refused.value.after_s)
    attempt = await tries.admit("ann", "203.0.113.8")
    with pytest.raises(RetryLaterError):
        await tries.admit("ann", "203.0.113.8")
    await tries.succeed(attempt)
    await tries.admit("ann", "203.0.113.8")


async def test_a_success_gives_its_address_one_try_back_and_no_more(kit_store: Store) -> None:
    tries = LoginThrottle(kit_store)
    for number in range(BY_ADDRESS.count + 5):
        await tries.succeed(await tries.admit(f"colleague-{number}", "203.0.113.7"))
    for number in range(BY_ADDRESS.count):
        await tries.admit(f"guessed-{number}", "203.0.113.7")
        if number < BY_ADDRESS.count - 1:
            await tries.succeed(await tries.admit("mallory", "203.0.113.7"))
    with pytest.raises(RetryLaterError):
        await tries.admit("mallory", "203.0.113.7")


async def test_an_address_that_tries_many_names_must_wait(kit_store: Store) -> None:
    tries = LoginThrottle(kit_store)
    for number in range(BY_ADDRESS.count):
        await tries.admit(f"name-{number}", "203.0.113.7")
    with pytest.raises(RetryLaterError):
        await tries.admit("another", "203.0.113.7")
    await tries.admit("name-0", "203.0.113.8")


async def test_tries_at_once_cant_pass_the_limit_together(kit_store: Store) -> None:
    tries = LoginThrottle(kit_store)
    done = await asyncio.gather(
        *(tries.admit("ann", f"203.0.113.{n}") for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(each, LoginAttempt) for each in done) == BY_NAME.count


async def test_people_are_found_by_any_part_of_their_name(kit_store: Store, clock: ManualClock) -> None:
    users, names = Users(kit_store), ["ann@acme.example", "ben@zoo.example", "joanna@zoo.example", "carl"]
    for name in names:
        await users.add(name, role="viewer", tenant_id="zoo" if "zoo" in name else "acme", password=None)
        await clock.advance(1)
    found, after = await users.search(" ANN")
    assert [user.id for user in found] == ["joanna@zoo.example", "ann@acme.example"]
    assert after is None
    # Pages end after the last one found, not after the last one looked at.
    pages = list[str]()
    for _ in range(3):
        found, after = await users.search("example", limit=1, cursor=after)
        pages += [user.id for user in found]
    assert (pages, after) == (["joanna@zoo.example", "ben@zoo.example", "ann@acme.example"], None)
    assert await users.search("dora") == ([], None)


async def test_a_search_that_ends_at_its_limit_can_be_continued(
    kit_store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.kit.access.users.SEARCHED_MAX", 4)
    monkeypatch.setattr("holdfast.kit.access.users._SEARCHED_AT_ONCE", 2)
    users = Users(kit_store)
    for number in range(6):
        await users.add(f"p{number}", role="viewer")
        await clock.advance(1)
    nobody, after = await users.search("p0")
    assert (nobody, after is not None) == ([], True)
    found, _ = await users.search("p0", cursor=after)
    assert [user.id for user in found] == ["p0"]
