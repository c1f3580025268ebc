"""Idempotent routes over HTTP on every engine: one effect for a key, one answer, takeover after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.kit.access import ApiTokens
from holdfast.kit.audit import AuditEvent
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.retention import Sweeper
from holdfast.runtime import Runtime
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.http.processes import announce, holdfast_process
from tests.http.sales import HANG_FILE, SERVICE, Stock
from tests.http.server_harness import PLENTY, ServerHarness, serving

API = "/sales/api/v1"
SALES = f"{API}/sales"
AT_ROOT = "/api/v1/sales"
KEY = {"Idempotency-Key": "k1"}


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
def store_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def shop(tmp_path: Path, store_url: str) -> AsyncIterator[ServerHarness]:
    async with serving(tmp_path, services=[SERVICE], store=store_url) as harness:
        yield harness


@pytest.fixture
async def small_shop(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    """On the engine of the tests that are not about storing."""
    async with serving(tmp_path, services=[SERVICE]) as harness:
        yield harness


async def _stock(runtime: Runtime, item: str = "lamp", tenant: str = "-") -> Stock | None:
    found = await runtime.store.tenant(tenant).get(Stock, item)
    return None if found is None else found.doc


async def _sold(runtime: Runtime, item: str = "lamp", tenant: str = "-") -> int:
    stock = await _stock(runtime, item, tenant)
    return 0 if stock is None else stock.sold


async def _sell(
    harness: ServerHarness,
    token: str,
    item: str = "lamp",
    *,
    path: str = SALES,
    headers: Mapping[str, str] = KEY,
) -> tuple[int, Any, Mapping[str, str]]:
    return await harness.ask("POST", path, token=token, json={"item": item}, headers=headers)


async def test_a_repeated_request_gets_the_stored_answer_and_acts_once(shop: ServerHarness) -> None:
    token = await shop.token("developer")
    status, answer, headers = await _sell(shop, token)
    assert (status, answer, headers["x-item"]) == (201, {"item": "lamp", "sold": 1}, "lamp")
    assert "Idempotency-Replayed" not in headers
    again = await _sell(shop, token)
    assert again[:2] == (status, answer)
    assert (again[2]["Idempotency-Replayed"], again[2]["x-item"]) == ("true", "lamp")
    events = Query(AuditEvent).where("action", "==", "item.sold").order_by("-sequence")
    assert await shop.runtime.store.tenant("-").count(events) == 1
    assert (await _sell(shop, token, headers={}))[1]["sold"] == 2, "without a key every request acts"
    assert await _sold(shop.runtime) == 2


async def test_another_request_under_a_key_is_refused_and_the_key_of_another_caller_is_another(
    small_shop: ServerHarness,
) -> None:
    ada, bob = await small_shop.token("developer"), await small_shop.token("developer")
    far = await small_shop.token("developer", "elsewhere")
    assert (await _sell(small_shop, ada))[0] == 201
    status, fault, _ = await _sell(small_shop, ada, "chair")
    assert (status, fault["error"]["code"]) == (422, "key_reused")
    assert (await _sell(small_shop, ada, path=f"{SALES}?x=1"))[0] == 422
    assert (await _sell(small_shop, ada, path=f"{API}/restocks"))[0] == 422
    assert (await _sell(small_shop, bob))[1]["sold"] == 2
    assert (await _sell(small_shop, far, "far-lamp"))[1]["sold"] == 1


async def test_fifty_requests_at_once_act_once_and_those_that_come_too_early_are_told_to_wait(
    shop: ServerHarness,
) -> None:
    token = await shop.token("developer")
    answers = await asyncio.gather(*(_sell(shop, token) for _ in range(50)))
    assert {status for status, _, _ in answers} <= {201, 409}
    assert sum(status == 201 and "Idempotency-Replayed" not in headers for status, _, headers in answers) == 1
    waiting = [headers for status, _, headers in answers if status == 409]
    assert all(int(headers["Retry-After"]) >= 1 for headers in waiting)
    assert (await _sell(shop, token))[2]["Idempotency-Replayed"] == "true"
    assert await _sold(shop.runtime) == 1


async def test_concurrent_sales_under_many_keys_all_count(shop: ServerHarness) -> None:
    """Each conflicts with the others, so that handlers run again."""
    token = await shop.token("developer")
    sales = [_sell(shop, token, headers={"Idempotency-Key": f"k{n}"}) for n in range(12)]
    answers = await asyncio.gather(*sales)
    assert sorted(answer["sold"] for _, answer, _ in answers) == list(range(1, 13))
    assert await _sold(shop.runtime) == 12


async def test_a_failed_request_is_not_stored_and_its_key_is_free_at_once(small_shop: ServerHarness) -> None:
    token = await small_shop.token("developer")
    for _ in range(2):
        status, fault, headers = await _sell(small_shop, token, "none")
        assert (status, fault["error"]["message"]) == (409, "sold out")
        assert "Idempotency-Replayed" not in headers
    status, fault, _ = await _sell(small_shop, token, "lost", headers={"Idempotency-Key": "k2"})
    assert (status, fault["error"]["code"]) == (409, "lease_lost"), "an act's own lost lease is no lost key"
    failed = Query(AuditEvent).where("action", "==", "item.sold").order_by("-sequence")
    assert await small_shop.runtime.store.tenant("-").count(failed) == 3, "each failure is on the trail"
    assert (await _sell(small_shop, token, headers={"Idempotency-Key": "x" * 201}))[0] == 422


async def test_an_operation_of_several_commits_is_answered_once_where_it_is_repeatable(
    small_shop: ServerHarness,
) -> None:
    token, path = await small_shop.token("developer"), f"{API}/restocks"
    first, again = await _sell(small_shop, token, path=path), await _sell(small_shop, token, path=path)
    assert (first[0], again[0], again[2]["Idempotency-Replayed"]) == (200, 200, "true")
    stock = await _stock(small_shop.runtime)
    assert stock is not None
    assert stock.restocked == 2
    status, _, _ = await _sell(
        small_shop, token, path=f"{API}/wrong-restocks", headers={"Idempotency-Key": "k2"}
    )
    assert status == 500, "declared as one commit, it is refused at the second"


async def test_answers_are_kept_for_a_day(tmp_path: Path, store_url: str, clock: ManualClock) -> None:
    async with serving(tmp_path, services=[SERVICE], store=store_url, clock=clock) as harness:
        token = await harness.token("developer")
        await _sell(harness, token)
        sweeper = Sweeper(harness.runtime.store, [IdempotencyDocument])
        clock.tick(timedelta(days=1).total_seconds() - 1)
        assert (await sweeper.sweep(), (await _sell(harness, token))[1]["sold"]) == (0, 1)
        clock.tick(2)
        assert (await sweeper.sweep(), (await _sell(harness, token))[1]["sold"]) == (1, 2)


async def test_a_killed_process_leaves_no_act_without_its_answer_and_is_taken_over(
    tmp_path: Path, store_url: str
) -> None:
    announce(tmp_path, "tests.http.sales:SERVICE")
    told = tmp_path / "acted"
    # The request must not be given up before the process is killed.
    environ = {"HOLDFAST_STORE": store_url, "HOLDFAST_LIMITS": '{"request_s": 600}', HANG_FILE: str(told)}
    config = load_config(
        {"home": tmp_path / "h", "store": store_url, "limits": PLENTY, "allow": "127.0.0.1"}, environ={}
    )
    runtime = await Runtime.open(config, services=[SERVICE])
    token = await ApiTokens(runtime.store).create("test", role="developer", tenant_id="-")
    await runtime.close()
    async with holdfast_process(tmp_path, "serve", "--port", "0", "--only", "sales", environ=environ) as (
        process, address,
    ):  # fmt: skip
        posting = asyncio.create_task(_post(address, token))
        async with asyncio.timeout(60):
            while not told.exists():  # noqa: ASYNC110 - another process makes the file
                await asyncio.sleep(0.01)
        async with serving(tmp_path / "h", services=[SERVICE], store=store_url, at_root=True) as harness:
            status, _, headers = await _sell(harness, token, path=AT_ROOT)
            assert (status, int(headers["Retry-After"]) >= 1) == (409, True)
        process.kill()
        await process.wait()
        with pytest.raises(aiohttp.ClientError):
            await posting
    later = ManualClock(SystemClock().now() + timedelta(minutes=20))
    async with serving(
        tmp_path / "h", services=[SERVICE], store=store_url, clock=later, at_root=True
    ) as harness:
        assert await _sold(harness.runtime) == 0
        status, answer, headers = await _sell(harness, token, path=AT_ROOT)
        assert (status, answer["sold"], "Idempotency-Replayed" in headers) == (201, 1, False)
        assert (await _sell(harness, token, path=AT_ROOT))[2]["Idempotency-Replayed"] == "true"
        assert await _sold(harness.runtime) == 1


async def _post(address: str, token: str) -> None:
    headers = {"authorization": f"Bearer {token}", **KEY}
    async with (
        aiohttp.ClientSession() as client,
        client.post(address + AT_ROOT, json={"item": "lamp"}, headers=headers),
    ):
        pass


async def test_the_header_is_in_the_description_of_routes_that_declare_it(small_shop: ServerHarness) -> None:
    described = small_shop.surface.app.state.openapi()["paths"]
    sale, drain = described[SALES]["post"], described["/work/drain"]["post"]
    (header,) = [one for one in sale["parameters"] if one["name"] == "Idempotency-Key"]
    assert (header["in"], header["required"]) == ("header", False)
    assert "Idempotency-Replayed" in sale["responses"]["201"]["headers"]
    assert not [one for one in drain.get("parameters", ()) if one["name"] == "Idempotency-Key"]
