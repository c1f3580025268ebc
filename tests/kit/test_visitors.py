"""Sessions of visitors: signed, rolling, shared by processes; a sign-out or a changed cookie ends them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.errors import TooLargeError, TooManyRequestsError
from holdfast.kit.access import CurrentVisitor, VisitorSession, VisitorSessions
from holdfast.kit.access.visitors import VISIT_S
from holdfast.kit.rate_limit import RateWindow, SlidingWindow
from holdfast.kit.vault import Vault, new_key
from holdfast.store import Store
from holdfast.testing import ManualClock
from tests.kit.visitor_process import QUOTA

DOCUMENTS = [VisitorSession]
KEY = new_key("first")
ROOT = Path(__file__).parents[2]
VAULT = Vault.from_settings(KEY)


@pytest.fixture
def visitors(kit_store: Store) -> VisitorSessions:
    return VisitorSessions(kit_store, VAULT, service="reader")


async def name_of(visitors: VisitorSessions, cookie: str) -> str | None:
    caller = (await visitors.verify(cookie)).caller
    return caller.name if caller else None


async def test_a_session_lasts_a_day_after_its_last_request(
    visitors: VisitorSessions, clock: ManualClock
) -> None:
    cookie = await visitors.begin("dang")
    for _ in range(3):
        await clock.advance(VISIT_S - 1)
        visitor = await visitors.verify(cookie)
        assert visitor.caller is not None
        assert (visitor.caller.name, visitor.caller.user_id) == ("dang", "visitor:reader:dang")
        assert visitor.cookie == cookie, "the browser is told the new end"
        assert (await visitors.verify(cookie)).cookie is None, "not written at every request"
    await clock.advance(VISIT_S)
    ended = await visitors.verify(cookie)
    assert (ended.caller, ended.cookie) == (None, "")


async def test_any_change_of_the_cookie_ends_it(visitors: VisitorSessions) -> None:
    cookie = await visitors.begin("dang")
    token, signature = cookie.split(".")
    other = (await visitors.begin("pg")).split(".")[1]
    flipped = ("B" if token[0] == "A" else "A") + token[1:]
    for forged in ("", "x", token, f"{flipped}.{signature}", f"{token}.{other}", cookie + " ", "é" * 87):
        assert await name_of(visitors, forged) is None
    assert await name_of(visitors, cookie) == "dang"


async def test_a_sign_out_ends_it_for_copies_of_the_cookie_too(visitors: VisitorSessions) -> None:
    first, second = await visitors.begin("dang"), await visitors.begin("dang")
    session_id = (await visitors.verify(first)).session_id
    await visitors.end(session_id)
    await visitors.end(session_id)
    assert await name_of(visitors, first) is None
    assert await name_of(visitors, second) == "dang"


async def test_signing_in_again_replaces_the_session(visitors: VisitorSessions) -> None:
    first = await visitors.begin("dang")
    second = await visitors.begin("pg", replaces=(await visitors.verify(first)).session_id)
    assert [await name_of(visitors, cookie) for cookie in (first, second)] == [None, "pg"]


async def test_a_session_of_one_service_is_not_anothers(kit_store: Store, visitors: VisitorSessions) -> None:
    other = VisitorSessions(kit_store, VAULT, service="shop")
    assert await name_of(other, await visitors.begin("dang")) is None


async def test_another_process_knows_the_session_also_after_a_key_rotation(
    kit_url: str, visitors: VisitorSessions, clock: ManualClock
) -> None:
    cookie = await visitors.begin("dang")
    store = await open_store(kit_url, DOCUMENTS, clock=clock)
    try:
        rotated = Vault.from_settings(f"{new_key('second')},{KEY}")
        elsewhere = VisitorSessions(store, rotated, service="reader")
        assert await name_of(elsewhere, cookie) == "dang"
        assert (
            await name_of(VisitorSessions(store, Vault.from_settings(new_key("x")), service="reader"), cookie)
            is None
        )
        await elsewhere.end((await elsewhere.verify(cookie)).session_id)
    finally:
        await store.close()
    assert await name_of(visitors, cookie) is None


async def test_what_a_killed_process_committed_holds_in_the_others(kit_url: str) -> None:
    store = await open_store(kit_url, [RateWindow, VisitorSession])
    await store.migrate()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kit.visitor_process", kit_url, KEY, stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    cookie = (await process.stdout.readline()).decode().strip()
    process.kill()
    await process.wait()
    try:
        visitors = VisitorSessions(store, VAULT, service="reader")
        assert await name_of(visitors, cookie) == "dang"
        window = SlidingWindow(store, QUOTA)
        await window.admit("203.0.113.7")
        with pytest.raises(TooManyRequestsError):
            await window.admit("203.0.113.7")
        await visitors.end((await visitors.verify(cookie)).session_id)
        assert await name_of(visitors, cookie) is None
    finally:
        await store.close()


async def test_the_cookie_itself_is_not_stored(kit_store: Store, visitors: VisitorSessions) -> None:
    cookie = await visitors.begin("dang")
    stored = await kit_store.privileged().get(VisitorSession, (await visitors.verify(cookie)).session_id)
    assert stored is not None
    assert cookie.split(".")[0] not in repr(stored.doc)


def test_preferences_that_no_browser_would_keep_are_refused() -> None:
    visitor = CurrentVisitor()
    visitor.preferences = "a" * 3_500
    with pytest.raises(TooLargeError, match="at most 3,500 bytes"):
        visitor.preferences = "ä" * 600
