"""People coming in and leaving, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from argon2 import PasswordHasher

from holdfast.kit.access import COOKIE, SignInLinks, Users
from holdfast.kit.access.login_throttle import BY_ADDRESS, BY_NAME
from holdfast.kit.audit import AuditEvent
from holdfast.kit.rate_limit import RateWindow, SlidingWindow
from holdfast.store import Query
from tests.console.console_harness import PASSWORD, ConsoleHarness, Visitor, console


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path) as made:
        yield made


async def _sign_in(
    visitor: Visitor, name: str, password: str, after: str = "/console"
) -> tuple[int, str, str]:
    form = {"name": name, "password": password, "next": after}
    status, text, headers = await visitor.ask("POST", "/sign-in", data=form)
    return status, text, headers.get("location", "")


async def _trail(harness: ConsoleHarness) -> list[str]:
    page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
    return [event.action for event in page.docs if event.outcome != "failed"]


async def test_a_page_sends_a_stranger_to_the_sign_in_page_and_back_again(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    visitor = harness.visitor()
    status, _, headers = await visitor.ask("GET", "/console/deliveries?status=dead")
    assert (status, headers["location"]) == (303, "/sign-in?next=%2Fconsole%2Fdeliveries%3Fstatus%3Ddead")
    assert 'value="/console/deliveries?status=dead"' in await visitor.page(headers["location"])
    status, _, where = await _sign_in(visitor, "Ann", PASSWORD, "/console/deliveries?status=dead")
    assert (status, where) == (303, "/console/deliveries?status=dead")
    assert "Deliveries" in await visitor.page(where)
    assert (await visitor.ask("GET", "/sign-in"))[0] == 200


async def test_the_front_page_leads_to_the_console(harness: ConsoleHarness) -> None:
    status, _, headers = await harness.visitor().ask("GET", "/")
    assert (status, headers["location"]) == (303, "/console")


async def test_signing_in_never_leads_to_another_site(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    for after in ("https://evil.example", "//evil.example", "/\\evil.example", "x"):
        assert (await _sign_in(harness.visitor(), "ann", PASSWORD, after))[2] == "/"


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    form = {"name": "ann", "password": PASSWORD}
    planted = {"cookie": f"{COOKIE}={'A' * 43}"}
    _, _, headers = await harness.visitor().ask("POST", "/sign-in", data=form, headers=planted)
    cookie = headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert "A" * 43 not in cookie
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= {part.strip() for part in cookie.split(";")}
    assert "Secure" not in cookie


async def test_over_https_the_cookie_stays_there(tmp_path: Path) -> None:
    async with console(tmp_path, public_url="https://holdfast.example") as harness:
        await harness.person("ann", role="viewer")
        form = {"name": "ann", "password": PASSWORD}
        _, _, headers = await harness.visitor().ask("POST", "/sign-in", data=form)
        assert headers["set-cookie"].startswith(f"__Host-{COOKIE}=")
        assert {"Secure", "Path=/"} <= {part.strip() for part in headers["set-cookie"].split(";")}
        session = headers["set-cookie"].partition("=")[2].partition(";")[0]
        for name, status in ((COOKIE, 303), (f"__Host-{COOKIE}", 200)):
            cookie = {"cookie": f"{name}={session}"}
            assert (await harness.visitor().ask("GET", "/console", headers=cookie))[0] == status


async def test_a_page_with_letters_of_any_alphabet_is_gone_on_to(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    assert (await harness.visitor().ask("GET", "/sign-in?next=/console/documents/caf%C3%A9"))[0] == 200
    for after in ("/console/documents/café", "/console/documents/日本?q=ü", "/console/\udcff"):
        visitor = harness.visitor()
        form = urlencode({"name": "ann", "password": PASSWORD, "next": after}, errors="replace")
        status, _, headers = await visitor.ask("POST", "/sign-in", data=form.encode())
        assert (status, headers["location"].isascii()) == (303, True), after


async def test_signing_in_hashes_the_password_again_where_it_took_too_little_work(
    harness: ConsoleHarness,
) -> None:
    users = Users(harness.runtime.store)
    await harness.person("ann", role="viewer")
    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
    await users.set_password_hash("ann", weak)
    assert (await _sign_in(harness.visitor(), "ann", "wrong password"))[0] == 401
    assert await _hash(users) == weak
    visitor = harness.visitor()
    assert (await _sign_in(visitor, "ann", PASSWORD))[0] == 303
    rehashed = await _hash(users)
    assert rehashed not in ("", weak)
    assert (await visitor.ask("GET", "/console"))[0] == 200, "the session is of the same generation"
    assert (await _sign_in(harness.visitor(), "ann", PASSWORD))[0] == 303
    assert await _hash(users) == rehashed


async def _hash(users: Users) -> str:
    user = await users.find("ann")
    assert user is not None
    return user.password


async def test_a_wrong_password_and_an_unknown_name_are_told_alike(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    known, unknown = harness.visitor(), harness.visitor()
    answers = [
        await _sign_in(known, "ann", "wrong password"),
        await _sign_in(unknown, "bob", "wrong password"),
    ]
    assert [status for status, _, _ in answers] == [401, 401]
    assert answers[0][1].replace('value="ann"', "") == answers[1][1].replace('value="bob"', "")
    assert await _trail(harness) == ["session.refused", "session.refused"]


async def test_a_password_typed_as_a_name_is_written_down_nowhere(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    await _sign_in(harness.visitor(), "ann", "wrong password")
    await _sign_in(harness.visitor(), "my-secret-password", "ann")
    page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
    assert [event.subject for event in page.docs] == ["ann", "somebody unknown"]
    kept = (await harness.runtime.store.privileged().query(Query(RateWindow))).docs
    assert "my-secret-password" not in f"{page.docs} {kept}"


async def test_too_many_wrong_tries_must_wait_even_with_the_right_password(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    # Put there, not tried: how long hashing takes must not decide whether the wait is over.
    for _ in range(BY_NAME.count):
        await SlidingWindow(harness.runtime.store, BY_NAME).admit("ann")
    form = {"name": "ann", "password": PASSWORD}
    status, text, headers = await harness.visitor().ask("POST", "/sign-in", data=form)
    assert status == 429
    assert 1 <= int(headers["retry-after"]) <= BY_NAME.period_s
    assert "Too many tries" in text
    assert "set-cookie" not in headers


async def test_a_wrong_password_counts_as_a_try_and_the_right_one_clears_it(harness: ConsoleHarness) -> None:
    await harness.person("ann", role="viewer")
    store = harness.runtime.store.privileged()
    by_name, by_address = (SlidingWindow(store, quota) for quota in (BY_NAME, BY_ADDRESS))
    await _sign_in(harness.visitor(), "ann", "wrong password")
    counted = await store.get(RateWindow, by_name.id_of("ann"))
    assert counted is not None
    assert len(counted.doc.taken_at) == 1
    assert (await _sign_in(harness.visitor(), "ann", PASSWORD))[0] == 303
    assert await store.get(RateWindow, by_name.id_of("ann")) is None
    counted = await store.get(RateWindow, by_address.id_of("127.0.0.1"))
    assert counted is not None
    assert len(counted.doc.taken_at) == 1


async def test_the_addresses_of_one_ipv6_network_share_their_tries(tmp_path: Path) -> None:
    async with console(tmp_path, proxies="127.0.0.1") as harness:
        form = {"name": "ann", "password": "wrong password"}
        for number in (1, 2):
            headers = {"x-forwarded-for": f"2001:db8:0:7:{number}::{number}"}
            assert (await harness.visitor().ask("POST", "/sign-in", data=form, headers=headers))[0] == 401
        key = SlidingWindow(harness.runtime.store, BY_ADDRESS).id_of("2001:db8:0:7::/64")
        counted = await harness.runtime.store.privileged().get(RateWindow, key)
        assert counted is not None
        assert len(counted.doc.taken_at) == 2


async def test_signing_out_ends_the_session_everywhere_the_cookie_is(harness: ConsoleHarness) -> None:
    visitor = await harness.signed_in("ann", role="viewer")
    twin = harness.visitor()
    twin.session.cookie_jar.update_cookies(visitor.session.cookie_jar.filter_cookies(harness.url))
    assert (await twin.ask("GET", "/console"))[0] == 200
    status, text, headers = await visitor.act("/sign-out")
    assert (status, text) == (200, '{"signedOut":true}')
    assert "Max-Age=0" in headers["set-cookie"]
    assert (await twin.ask("GET", "/console"))[0] == 303
    assert await _trail(harness) == ["session.ended"]


async def test_acts_need_the_pages_own_token(harness: ConsoleHarness) -> None:
    visitor = await harness.signed_in("ann")
    body = {"name": "bob", "role": "viewer"}
    assert (await visitor.ask("POST", "/api/v1/users", json=body))[0] == 403
    foreign = {"sec-fetch-site": "cross-site", "x-csrf-token": await visitor.csrf()}
    assert (await visitor.ask("POST", "/api/v1/users", json=body, headers=foreign))[0] == 403
    assert (await visitor.act("/api/v1/users", body))[0] == 200


async def test_another_site_cant_sign_a_visitor_in(harness: ConsoleHarness) -> None:
    await harness.person("mallory", role="viewer")
    form = {"name": "mallory", "password": PASSWORD}
    foreign = {"sec-fetch-site": "cross-site"}
    status, _, headers = await harness.visitor().ask("POST", "/sign-in", data=form, headers=foreign)
    assert status == 403
    assert "set-cookie" not in headers


async def test_the_first_link_is_not_spent_by_looking_or_by_a_mistake(harness: ConsoleHarness) -> None:
    visitor, link = harness.visitor(), urlsplit(await harness.first_link())
    path = f"{link.path}?{link.query}"
    form = {"code": link.query.removeprefix("code="), "name": "ann", "password": PASSWORD, "again": PASSWORD}
    assert "Nobody is here yet" in await visitor.page(path)
    for wrong in ({"again": "something else"}, {"password": "short", "again": "short"}, {"name": "a b"}):
        status, text, _ = await visitor.ask("POST", link.path, data={**form, **wrong})
        assert status == 422
        assert 'role="alert"' in text
    status, _, headers = await visitor.ask("POST", link.path, data=form)
    assert (status, headers["location"]) == (303, "/console")
    assert "Overview" in await visitor.page("/console")
    assert (await harness.visitor().ask("POST", link.path, data=form))[0] == 410
    assert "holdfast users link" in await visitor.page(path, 410)
    assert await _trail(harness) == ["user.link_made", "session.began"]


async def test_a_persons_link_lets_them_choose_a_password(harness: ConsoleHarness) -> None:
    await Users(harness.runtime.store).add("ben@acme.example", role="viewer", tenant_id="acme")
    code = await SignInLinks(harness.runtime.store).create("ben@acme.example")
    visitor = harness.visitor()
    assert "ben@acme.example" in await visitor.page(f"/sign-in/link?code={code}")
    form = {"code": code, "name": "someone else", "password": PASSWORD, "again": PASSWORD}
    assert (await visitor.ask("POST", "/sign-in/link", data=form))[0] == 303
    shown = await visitor.page("/console")
    assert "ben@acme.example" in shown
    assert "acme" in shown


async def test_what_is_no_form_is_told_so_without_a_fault(harness: ConsoleHarness) -> None:
    many = b"&".join([b"a=1"] * 30)
    for path in ("/sign-in", "/sign-in/first", "/sign-in/link"):
        for body in (b"\xff\xfe\x00", b"x" * 20_000, b"", many, b"name=%ff&password=%ff", b"{}"):
            status, text, _ = await harness.visitor().ask("POST", path, data=body)
            assert 400 <= status < 500, (path, body[:20], text)
            assert "<h1>" in text


async def test_a_disabled_person_is_out_at_the_next_click(harness: ConsoleHarness) -> None:
    ann, ben = await harness.signed_in("ann"), await harness.signed_in("ben", role="admin")
    assert (await ben.ask("GET", "/console"))[0] == 200
    assert (await ann.act("/api/v1/users/ben/disable"))[0] == 200
    assert (await ben.ask("GET", "/console"))[0] == 303
    assert (await _sign_in(harness.visitor(), "ben", PASSWORD))[0] == 401


async def test_a_new_password_needs_the_old_one_and_ends_other_sessions(harness: ConsoleHarness) -> None:
    here, there = await harness.signed_in("ann"), harness.visitor()
    await _sign_in(there, "ann", PASSWORD)
    assert "Change password" in await here.page("/console/you")
    wrong = {"current": "not this one", "password": "another good one"}
    status, text, _ = await here.act("/sign-in/password", wrong)
    assert (status, "another one" in text) == (422, True)
    weak = {"current": PASSWORD, "password": "short"}
    assert (await here.act("/sign-in/password", weak))[0] == 422
    assert (await here.act("/sign-in/password", {**wrong, "current": PASSWORD}))[0] == 200
    assert (await here.ask("GET", "/console"))[0] == 200
    assert (await there.ask("GET", "/console"))[0] == 303
    assert (await _sign_in(there, "ann", PASSWORD))[0] == 401
    assert (await _sign_in(there, "ann", "another good one"))[0] == 303
    assert (await here.act("/sign-out", {"everywhere": True}))[0] == 200
    assert (await there.ask("GET", "/console"))[0] == 303
    assert [one for one in await _trail(harness) if "began" not in one] == [
        "user.password_set", "session.refused", "session.ended_everywhere",
    ]  # fmt: skip


async def test_nobody_gives_or_takes_more_than_they_have(harness: ConsoleHarness) -> None:
    await harness.signed_in("ann")
    ben = await harness.signed_in("ben", role="admin")
    assert (await ben.act("/api/v1/users", {"name": "cy", "role": "owner"}))[0] == 403
    assert (await ben.act("/api/v1/users", {"name": "cy", "role": "admin"}))[0] == 200
    for act in ("disable", "enable", "link"):
        assert (await ben.act(f"/api/v1/users/ann/{act}"))[0] == 403
    assert (await ben.act("/api/v1/users/ben/disable"))[0] == 422
    assert (await ben.act("/api/v1/users/nobody/disable"))[0] == 404
    assert (await ben.act("/api/v1/users", {"name": "cy", "role": "admin"}))[0] == 409
    assert (await ben.act("/api/v1/users", {"name": "d/e", "role": "admin"}))[0] == 422
