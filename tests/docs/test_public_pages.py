"""The example of the page on public pages, served as it is written: pages, visitors, limits, caches, cron."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from holdfast.config import load_config
from holdfast.errors import DeclarationError
from holdfast.kit.access import ApiTokens
from holdfast.runtime import Runtime
from holdfast.server import compose, settings
from holdfast.service import Context, Parts, PublicPage, Service
from holdfast.site import routes
from tests.serving import served

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "public-pages.md"
OURS = {"sec-fetch-site": "same-origin"}
RIGHT = {"name": "ann", "password": "open sesame"}


@pytest.fixture(scope="module")
def guestbook(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """The service of the page, written to files as the page says."""
    text = PAGE.read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    front, error = re.findall(r"^```html\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    folder = tmp_path_factory.mktemp("guestbook")
    (folder / "pages").mkdir()
    (folder / "__init__.py").write_text(source, encoding="utf-8")
    (folder / "pages" / "front.html").write_text(front, encoding="utf-8")
    (folder / "pages" / "error.html").write_text(error, encoding="utf-8")
    (folder / "pages" / "guestbook.css").write_text("p { margin: 0 }\n" * 100, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("guestbook", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["guestbook"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    service: Service = module.service
    return service


class Browser:
    """A client with its own cookies, which follows no redirect."""

    def __init__(self, session: aiohttp.ClientSession, base: str = "") -> None:
        self.session, self.base = session, base

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, str, Any]:
        headers = {**OURS, **more.pop("headers", {})}
        async with self.session.request(
            method, self.base + path, headers=headers, allow_redirects=False, **more
        ) as response:
            return response.status, await response.text(), response.headers

    async def get(self, path: str, **more: Any) -> str:
        status, text, _ = await self.ask("GET", path, **more)
        assert status == 200, text
        return text


@contextlib.asynccontextmanager
async def browsing(
    home: Path, service: Service, *, at_root: bool = False, **config: Any
) -> AsyncIterator[tuple[Browser, Runtime]]:
    runtime = await Runtime.open(load_config({"home": home, **config}, environ={}), services=[service])
    try:
        surface = compose(runtime, at_root=at_root)
        surface.ready = True
        async with (
            served(settings(surface)) as address,
            aiohttp.ClientSession(address, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        ):
            yield Browser(session, "" if at_root else "/guestbook"), runtime
            surface.changes.close()
    finally:
        await runtime.close()


async def test_a_visitor_signs_in_writes_and_signs_out_without_any_script(
    tmp_path: Path, guestbook: Service
) -> None:
    async with browsing(tmp_path, guestbook) as (ann, runtime):
        status, text, _ = await ann.ask("POST", "/lines", data={"text": "hello"})
        assert (status, "<h1>Sign in</h1>" in text) == (401, True), "nobody writes without a session"
        status, _, headers = await ann.ask("POST", "/sign-in", data=RIGHT)
        assert (status, headers["location"]) == (303, "/guestbook/")
        cookie = headers["set-cookie"]
        assert re.fullmatch(
            r"guestbook_visitor=[\w.-]+; Path=/guestbook; Max-Age=86400; HttpOnly; SameSite=Strict", cookie
        )
        assert (await ann.ask("POST", "/lines", data={"text": "<b>hello</b>"}))[0] == 303
        page = await ann.get("/")
        assert "<p>&lt;b&gt;hello&lt;/b&gt;</p>" in page
        assert "Sign ann out" in page
        assert await ann.get("/me") == '{"name":"ann"}'
        value = cookie.partition(";")[0].partition("=")[2]
        assert (await ann.ask("POST", "/sign-out"))[2]["set-cookie"].startswith("guestbook_visitor=; ")
        copied = {"cookie": f"guestbook_visitor={value}"}
        status, text, headers = await ann.ask("GET", "/me", headers=copied)
        assert (text, "Max-Age=0" in headers["set-cookie"]) == ('{"name":null}', True)
        trail = b"".join([line async for line in runtime.audit("-").export()])
        for action in (b"guestbook.signed_in", b"guestbook.line_written", b"guestbook.signed_out"):
            assert action in trail
        assert b"visitor:guestbook:ann" in trail


async def test_sessions_are_shared_by_processes_and_refused_where_they_were_changed(
    tmp_path: Path, guestbook: Service
) -> None:
    async with browsing(tmp_path, guestbook) as (ann, _):
        cookie = (await ann.ask("POST", "/sign-in", data=RIGHT))[2]["set-cookie"].partition(";")[0]
        async with browsing(tmp_path, guestbook) as (elsewhere, _):
            assert await elsewhere.get("/me", headers={"cookie": cookie}) == '{"name":"ann"}'
            forged = cookie[:-1] + ("A" if cookie[-1] != "A" else "B")
            assert await elsewhere.get("/me", headers={"cookie": forged}) == '{"name":null}'
            assert (await elsewhere.ask("POST", "/lines", data={}, headers={"cookie": forged}))[0] == 401


async def test_alone_it_is_at_the_root_and_outside_development_its_cookie_is_secure(
    tmp_path: Path, guestbook: Service
) -> None:
    async with browsing(tmp_path, guestbook, at_root=True, environment="production") as (ann, _):
        assert '<form method="post" action="/sign-in">' in await ann.get("/")
        cookie = (await ann.ask("POST", "/sign-in", data=RIGHT))[2]["set-cookie"]
        assert "; Path=/; " in cookie
        assert cookie.endswith("; HttpOnly; SameSite=Strict; Secure")
        assert (await ann.ask("GET", "/console"))[0] == 303


async def test_an_address_may_sign_in_ten_times_in_a_quarter_of_an_hour(
    tmp_path: Path, guestbook: Service
) -> None:
    async with browsing(tmp_path, guestbook, proxies="127.0.0.1/32") as (ann, _):
        for number in range(10):
            near = {"x-forwarded-for": f"2001:db8:0:7::{number:x}"}
            assert (await ann.ask("POST", "/sign-in", data={"name": "ann"}, headers=near))[0] == 401
        far = {"x-forwarded-for": "2001:db8:0:7:ffff::1"}
        status, text, headers = await ann.ask("POST", "/sign-in", data=RIGHT, headers=far)
        assert (status, "<h1>Too many requests</h1>" in text) == (429, True)
        assert 800 < int(headers["retry-after"]) <= 900
        other = {"x-forwarded-for": "2001:db8:0:8::1"}
        assert (await ann.ask("POST", "/sign-in", data=RIGHT, headers=other))[0] == 303


async def test_a_form_of_another_site_is_refused(tmp_path: Path, guestbook: Service) -> None:
    async with browsing(tmp_path, guestbook) as (ann, _):
        other = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
        assert (await ann.ask("POST", "/sign-in", data=RIGHT, headers=other))[0] == 403
        assert (await ann.ask("POST", "/sign-in", data="%ff=\xff"))[0] == 422


async def test_pages_and_feeds_are_revalidated_and_compressed(tmp_path: Path, guestbook: Service) -> None:
    async with browsing(tmp_path, guestbook) as (ann, _):
        _, text, headers = await ann.ask("GET", "/")
        assert (headers["cache-control"], headers["vary"]) == ("public, no-cache", "cookie, accept-encoding")
        assert "script-src 'self'" in headers["content-security-policy"]
        known = {"if-none-match": f'"x", {headers["etag"]}'}
        assert (await ann.ask("GET", "/", headers=known))[:2] == (304, "")
        assert (await ann.ask("GET", "/lines.txt"))[2]["cache-control"] == "public, max-age=60"
        (css,) = re.findall(r'href="(/assets/guestbook/[^"]+)"', text)
        async with ann.session.get(css, headers={"accept-encoding": "gzip"}, auto_decompress=False) as sent:
            assert sent.headers["content-encoding"] == "gzip"
            assert gzip.decompress(await sent.read()).startswith(b"p { margin: 0 }")
        assert (
            "content-encoding" not in (await ann.ask("GET", "/", headers={"accept-encoding": "gzip;q=0"}))[2]
        )
        await ann.ask("POST", "/sign-in", data=RIGHT)
        assert (await ann.ask("GET", "/"))[2]["cache-control"] == "private, no-cache"


@pytest.mark.parametrize(
    ("proxies", "headers", "status"),
    [
        ("127.0.0.1/32", {"x-appengine-cron": "true"}, 200),
        ("127.0.0.1/32,0.1.0.2/32", {"x-appengine-cron": "true", "x-forwarded-for": "0.1.0.2"}, 200),
        ("127.0.0.1/32", {"x-cloudscheduler": "true"}, 200),
        ("127.0.0.1/32", {"x-appengine-cron": "true", "x-forwarded-for": "203.0.113.7"}, 403),
        ("10.0.0.0/8", {"x-appengine-cron": "true"}, 403),
        (None, {"x-appengine-cron": "true"}, 403),
        ("127.0.0.1/32", {}, 403),
        ("127.0.0.1/32", {"x-appengine-cron": "true", "authorization": "Bearer hf_wrong"}, 403),
    ],
)
async def test_a_cron_header_counts_by_trusted_hops_alone(
    tmp_path: Path, guestbook: Service, proxies: str | None, headers: dict[str, str], status: int
) -> None:
    async with browsing(tmp_path, guestbook, proxies=proxies) as (cron, _):
        found, text, _ = await cron.ask("GET", "/_ah/air", headers=headers)
        assert found == status, text
        assert (text == '{"by":"scheduler"}') is (status == 200)


async def test_a_service_account_may_do_what_the_scheduler_does_and_others_may_not(
    tmp_path: Path, guestbook: Service
) -> None:
    async with browsing(tmp_path, guestbook) as (cron, runtime):
        tokens = ApiTokens(runtime.store)
        for role, status in (("service", 200), ("owner", 403)):
            token = await tokens.create(role, role=role, tenant_id="-")  # type: ignore[arg-type]
            assert (await cron.ask("GET", "/_ah/air", headers={"authorization": f"Bearer {token}"}))[
                0
            ] == status


async def test_a_public_page_without_its_templates_is_refused_at_the_start(
    tmp_path: Path, guestbook: Service
) -> None:
    async def nothing(ask: Any) -> dict[str, Any]:
        return {}

    def build(context: Context) -> Parts:
        return Parts(public_pages=[PublicPage(path="", template="front.html", data=nothing)])

    service = msgspec.structs.replace(guestbook, build=build)
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}), services=[service])
    try:
        with pytest.raises(DeclarationError, match="no folder pages/"):
            routes(runtime)
    finally:
        await runtime.close()
