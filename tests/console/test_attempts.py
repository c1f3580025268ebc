"""The attempt inspector over HTTP: the page, the route, and no secret in either."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

from holdfast.kit.outbox import Delivery
from tests.console.console_harness import TENANT, console
from tests.kit.eventually import until_found
from tests.kit.outbox_fixture import answer, receiving

SAID = answer(500, "x-request-id: <r-7>", "set-cookie: sid=open-sesame", body="<b>out of order</b>")


async def test_an_attempt_is_inspected_on_its_page_and_by_the_api(tmp_path: Path) -> None:
    async with receiving(lambda _: SAID) as receiver, console(tmp_path, work=True) as harness:
        endpoint = await harness.endpoint(receiver.url().replace("x=1", "token=hush"))
        (id,) = await harness.send(endpoint, '{"lease": 7}')

        async def dead() -> bool:
            found = await harness.runtime.store.tenant(TENANT).get(Delivery, id)
            return found is not None and found.doc.status == "dead"

        await until_found(dead)
        vera = await harness.signed_in("vera", role="viewer")
        path = f"/deliveries/holdfast/{id}"
        link = f'href="/console{path}/attempts/1"'
        assert link in await vera.page(f"/console{path}")
        page = await vera.page(f"/console{path}/attempts/1")
        (request,) = receiver.requests
        for text in (request.headers["webhook-signature"], "x-request-id", "<r-7>", "<b>out of order</b>"):
            assert text in unescape(page)
        assert "<b>out" not in page
        shown = json.loads(await vera.page(f"/api/v1{path}/attempts/1"))
        assert shown["response"]["headers"][1] == {"name": "x-request-id", "value": "<r-7>"}
        assert shown["curl"] in unescape(page)
        assert request.headers["webhook-signature"] in shown["curl"]
        for text in (page, await vera.page(f"/console{path}"), json.dumps(shown)):
            assert "hush" not in text
            assert "open-sesame" not in text
        for wrong in ("0", "2", "x", "9" * 30):
            await vera.page(f"/console{path}/attempts/{wrong}", 404)
        await vera.page(f"/api/v1{path}/attempts/2", 404)
