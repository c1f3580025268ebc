"""GitHub's delivery log over real HTTP: what failed and has not arrived is asked for again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import aiohttp
from aiohttp import web

from holdfast.app import open_store
from holdfast.delivery_log import MissedDelivery
from holdfast.kit.inbox import Inbox, InboxItem, InboxQueue, Source
from holdfast.providers.credentials import FixedToken
from holdfast.providers.github import GithubDeliveryLog, GithubVerifier
from holdfast.providers.rest import RestClient, fault_by_status
from holdfast.store import create
from holdfast.testing import ManualClock


class Hook:
    """The deliveries of an App, two on a page, and the attempts it was asked for."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.deliveries, self.asked = clock, list[dict[str, Any]](), list[str]()
        self.pages = 0

    def add(self, guid: str, status: int, *, days_ago: float) -> None:
        at = self.clock.now() - timedelta(days=days_ago)
        self.deliveries.append({
            "id": 1_000 + len(self.deliveries), "guid": guid, "delivered_at": at.isoformat(),
            "redelivery": False, "duration": 0.2, "status": "text", "status_code": status, "event": "push",
        })  # fmt: skip

    async def list(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer jwt"
        self.pages += 1
        start = int(request.query.get("cursor", "v1_0").removeprefix("v1_"))
        following = f'<{request.url.with_query(per_page=100, cursor=f"v1_{start + 2}")}>; rel="next"'
        headers = {"link": following} if start + 2 < len(self.deliveries) else {}
        return web.json_response(self.deliveries[start : start + 2], headers=headers)

    async def repeat(self, request: web.Request) -> web.Response:
        self.asked.append(request.match_info["id"])
        return web.json_response({}, status=202)


@contextlib.asynccontextmanager
async def _log(hook: Hook) -> AsyncIterator[GithubDeliveryLog]:
    app = web.Application()
    app.router.add_get("/app/hook/deliveries", hook.list)
    app.router.add_post("/app/hook/deliveries/{id}/attempts", hook.repeat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession() as session:
            yield GithubDeliveryLog(RestClient(
                session, f"http://127.0.0.1:{port}", fault_of=fault_by_status, clock=hook.clock,
                tokens=FixedToken("jwt"),
            ))  # fmt: skip
    finally:
        await runner.cleanup()


async def test_failed_attempts_are_listed_over_pages_up_to_the_given_time(clock: ManualClock) -> None:
    hook = Hook(clock)
    for guid, status, days in [
        ("a", 502, 0),
        ("b", 202, 1),
        ("c", 0, 1),
        ("a", 504, 2),
        ("d", 500, 4),
        ("e", 500, 5),
    ]:
        hook.add(guid, status, days_ago=days)
    async with _log(hook) as log:
        missed = [one async for one in log.missed(clock.now() - timedelta(days=3))]
    assert missed == [MissedDelivery("a", "1000"), MissedDelivery("c", "1002"), MissedDelivery("a", "1003")]
    assert hook.pages == 3, "it stops where the time is reached"


async def test_a_source_is_reconciled_with_the_log(sqlite_url: str, clock: ManualClock) -> None:
    hook, now = Hook(clock), clock.now()
    for guid, status in [("arrived", 504), ("missed", 502)]:
        hook.add(guid, status, days_ago=1)
    store = await open_store(sqlite_url, [InboxItem, InboxQueue], clock=clock)
    await store.migrate()
    item = InboxItem.received(
        tenant_id="-", source="github", message_id="arrived", received_at=now, due_at=now
    )
    await store.privileged().commit(create(item))
    async with _log(hook) as log:
        done = await Inbox(store).reconcile(
            Source(name="github", verifier=GithubVerifier("s"), delivery_log=log)
        )
    await store.close()
    assert (done.arrived, done.redelivered, hook.asked) == (1, 1, ["1001"])
