"""Connecting an account in a browser: from the console's button to the provider and back."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from yarl import URL

from holdfast.kit.audit import AuditEvent
from holdfast.simulators.google import RevokeGrant
from holdfast.store import Query
from tests.console.console_harness import ConsoleHarness, Visitor, console
from tests.console.desk import PUBLIC_URL, connect, desk
from tests.providers.provider_fixture import ALICE, Setting, a_setting


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with a_setting() as made:
        yield made


@pytest.fixture
async def harness(tmp_path: Path, setting: Setting) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[desk(setting)], public_url=PUBLIC_URL) as made:
        yield made


def _here(url: str) -> str:
    """A URL of the public address, as a path of this server."""
    assert url.startswith(PUBLIC_URL)
    return url.removeprefix(PUBLIC_URL)


async def _consent(setting: Setting, url: str) -> str:
    """Somebody consents at Google: where they are sent back to."""
    # Google asks which account; the hint answers it.
    hinted = str(URL(url).update_query(login_hint=ALICE))
    async with setting.session.get(hinted, allow_redirects=False) as page:
        assert page.status == 302, await page.text()
        return _here(page.headers["Location"])


async def _open(visitor: Visitor, link: str) -> str:
    status, text, headers = await visitor.ask("GET", _here(link))
    assert status == 303, text
    return headers["Location"]


async def _actions(harness: ConsoleHarness) -> list[str]:
    page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
    return [one.action for one in page.docs if one.action.startswith("connection.")]


async def test_an_account_is_connected_from_the_console(harness: ConsoleHarness, setting: Setting) -> None:
    ann = await harness.signed_in("ann")
    button = re.search(
        r'data-act="([^"]+/links)" data-body="([^"]+)" data-then="\{url\}">Connect a calendar<',
        await ann.page("/console/connections"),
    )
    assert button is not None
    status, told, _ = await ann.act(unescape(button[1]), json.loads(unescape(unescape(button[2]))))
    assert status == 201, told
    back = await _consent(setting, await _open(ann, json.loads(told)["url"]))
    status, text, headers = await ann.ask("GET", back)
    assert (status, headers["Location"]) == (303, "/console/connections"), text
    assert ALICE in await ann.page("/console/connections")
    assert await _actions(harness) == ["connection.link_made", "connection.connected"]


async def test_whoever_gets_a_link_connects_without_a_session(
    harness: ConsoleHarness, setting: Setting
) -> None:
    ann, eve, bob = await harness.signed_in("ann"), harness.visitor(), harness.visitor()
    link = json.loads((await ann.act("/api/v1/connections/links", {"purpose": "desk"}))[1])["url"]
    # What previews a link asks for its head.
    assert (await bob.ask("HEAD", _here(link)))[0] == 405
    back = await _consent(setting, await _open(bob, link))
    assert "was finished, has expired or never existed" in await eve.page(_here(link), 410)
    assert "another browser" in await eve.page(back, 410)
    text = await bob.page(back)
    assert f"<strong>{ALICE}</strong> of google is connected." in text
    await bob.page(back, 410)


async def test_a_declined_consent_is_told_and_escaped(harness: ConsoleHarness) -> None:
    ann, bob = await harness.signed_in("ann"), harness.visitor()
    link = json.loads((await ann.act("/api/v1/connections/links", {"purpose": "desk"}))[1])["url"]
    state = URL(await _open(bob, link)).query["state"]
    text = await bob.page(f"/oauth/callback?state={state}&error=%3Cb%3Eaccess_denied", 403)
    assert "&lt;b&gt;access_denied" in text
    assert await _actions(harness) == ["connection.link_made"]


async def test_a_lapsed_connection_is_connected_again(harness: ConsoleHarness, setting: Setting) -> None:
    ann = await harness.signed_in("ann")
    link = json.loads((await ann.act("/api/v1/connections/links", {"purpose": "desk"}))[1])["url"]
    await ann.page(await _consent(setting, await _open(ann, link)))
    (id,) = re.findall(r'<tr data-key="(\w+)"', await ann.page("/console/connections"))
    setting.google.run(RevokeGrant(email=ALICE))
    assert (await ann.act(f"/api/v1/connections/{id}/check"))[0] == 200
    page = await ann.page(f"/console/connections/{id}")
    assert "needs reauth" in page
    button = re.search(r'data-act="([^"]+/reconnect[^"]*)" data-body="([^"]+)"', page)
    assert button is not None
    status, told, _ = await ann.act(unescape(button[1]), json.loads(unescape(unescape(button[2]))))
    assert status == 201, told
    to_google = await _open(ann, json.loads(told)["url"])
    assert URL(to_google).query["login_hint"] == ALICE
    status, _, headers = await ann.ask("GET", await _consent(setting, to_google))
    assert (status, URL(headers["Location"]).path) == (303, f"/console/connections/{id}")
    assert "needs reauth" not in await ann.page(f"/console/connections/{id}")


async def test_a_connection_is_ended_here_alone(harness: ConsoleHarness, setting: Setting) -> None:
    connection = await connect(harness, setting, ALICE)
    ann = await harness.signed_in("ann")
    assert "Disconnect here" in await ann.page(f"/console/connections/{connection.id}")
    url = f"/api/v1/connections/{connection.id}/revoke"
    assert (await ann.act(url, {"atProvider": False}))[0] == 200
    assert not [call for call in setting.google.calls if urlsplit(call.path).path == "/revoke"]


async def test_a_link_is_refused_where_it_cant_work(
    harness: ConsoleHarness, setting: Setting, tmp_path: Path
) -> None:
    connection = await connect(harness, setting, ALICE)
    ann, vic = await harness.signed_in("ann"), await harness.signed_in("vic", role="viewer")
    links = "/api/v1/connections/links"
    assert (await vic.act(links, {"purpose": "desk"}))[0] == 403
    assert (await ann.act(links, {"purpose": "mail"}))[0] == 404
    # It was connected without a purpose, so nobody knows how to ask again.
    assert (await ann.act(f"/api/v1/connections/{connection.id}/reconnect"))[0] == 404
    async with console(tmp_path / "other", services=[desk(setting)]) as unreachable:
        ben = await unreachable.signed_in("ben")
        status, told, _ = await ben.act(links, {"purpose": "desk"})
    assert (status, "HOLDFAST_PUBLIC_URL" in told) == (422, True)


async def test_a_page_of_another_site_is_never_returned_to(harness: ConsoleHarness, setting: Setting) -> None:
    ann = await harness.signed_in("ann")
    body = {"purpose": "desk", "returnPath": "//evil.example/"}
    link = json.loads((await ann.act("/api/v1/connections/links", body))[1])["url"]
    _, _, headers = await ann.ask("GET", await _consent(setting, await _open(ann, link)))
    assert headers["Location"] == "/"
