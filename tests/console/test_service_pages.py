"""Pages of services: in the shell, with their own assets, refused at the start where they can't be served."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar import get

from holdfast.config import load_config
from holdfast.console import routes
from holdfast.errors import DeclarationError
from holdfast.runtime import Runtime
from holdfast.service import Context, Page, PageRequest, Parts, Service
from holdfast.store import create
from tests.console.console_harness import ConsoleHarness, console
from tests.examples import lanterns
from tests.examples.lanterns import Lantern


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[lanterns.service]) as made:
        yield made


async def test_a_services_page_stands_in_the_shell_with_its_own_assets(harness: ConsoleHarness) -> None:
    store = harness.runtime.store.tenant("-")
    await store.commit(*(create(Lantern(id=f"l{n}", place=f"Pier {n}")) for n in range(3)))
    ann = await harness.signed_in("ann")
    text = await ann.page("/console/lanterns")
    assert '<a href="/console/lanterns" aria-current="page">Lanterns</a>' in text
    assert "Pier 0" in text
    assert "Pier 2" not in text
    following = re.search(r'href="([^"]+)" rel="next"', text)
    assert following is not None
    assert "Pier 2" in await ann.page(unescape(following[1]))
    assert "Pier 1 · Holdfast" in await ann.page("/console/lanterns/l1")
    for found in re.findall(r'"(/assets/lanterns/[^"]+)"', text):
        status, _, headers = await harness.visitor().ask("GET", found)
        assert (status, headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
        assert (await ann.ask("GET", found.rpartition("/")[0] + "/lanterns.html"))[0] == 404
    assert (await ann.act("/lanterns/lanterns/l0/light"))[0] == 200
    assert "Pier 0" in await ann.page("/console/lanterns?state=lit")


async def test_with_one_service_at_the_root_the_console_keeps_its_place(tmp_path: Path) -> None:
    async with console(tmp_path, services=[lanterns.service], at_root=True) as harness:
        ann = await harness.signed_in("ann")
        await harness.runtime.store.tenant("-").commit(create(Lantern(id="l1", place="Pier 1")))
        assert "Pier 1" in await ann.page("/console/lanterns")
        assert (await ann.act("/lanterns/l1/light"))[0] == 200
        assert (await ann.ask("GET", "/"))[2]["location"] == "/console"


async def test_a_service_at_the_root_that_has_a_front_page_keeps_it(tmp_path: Path) -> None:
    def build(context: Context) -> Parts:
        @get("/", opt={"needs": "public"})
        async def front() -> dict[str, str]:
            return {"front": "mine"}

        @get("/sign-in", opt={"needs": "public"})
        async def own_sign_in() -> dict[str, str]:
            return {"sign in": "mine"}

        return Parts(routes=[front, own_sign_in])

    service = msgspec.structs.replace(lanterns.service, build=build)
    async with console(tmp_path, services=[service], at_root=True) as harness:
        assert await harness.visitor().page("/") == '{"front":"mine"}'
        assert await harness.visitor().page("/sign-in") == '{"sign in":"mine"}'
        assert "Overview" in await (await harness.signed_in("ann")).page("/console")


def _service(page: Page) -> Service:
    def build(context: Context) -> Parts:
        return Parts(pages=[page])

    return msgspec.structs.replace(lanterns.service, build=build)


async def _nothing(ask: PageRequest) -> dict[str, Any]:
    return {}


_PAGE = Page(path="", title="T", template="error.html", data=_nothing)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": "runs"}, "write it as in"),
        ({"path": "/Runs!"}, "write it as in"),
        ({"needs": "public"}, "needs one of"),
        ({"path": "/{run_id}"}, "can't be in the navigation"),
        ({"template": "none.html"}, "none.html"),
    ],
    ids=["no slash", "letters", "public", "parameter", "template"],
)
async def test_a_page_that_cant_be_served_is_refused_at_the_start(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    page = msgspec.structs.replace(_PAGE, **changes)
    config = load_config({"home": tmp_path}, environ={})
    runtime = await Runtime.open(config, services=[_service(page)])
    try:
        with pytest.raises(DeclarationError, match=re.escape(said)):
            routes(runtime)
    finally:
        await runtime.close()
