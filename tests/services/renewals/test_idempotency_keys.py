"""Idempotency keys on triggers, replays and outcomes: a repetition gets the first answer and does nothing."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from holdfast.simulators.rms import Behave
from tests.services.renewals.server import ROOT, P, Server

TRIGGER = f"/properties/{P}/residents/john/trigger-renewal-event"


async def _post(server: Server, path: str, body: Any = None, *, key: str) -> tuple[int, Any, bool]:
    headers = {"authorization": f"Bearer {server.token}", "Idempotency-Key": key}
    async with server.client.post(ROOT + path, json=body or {}, headers=headers) as answer:
        return answer.status, await answer.json(), answer.headers.get("Idempotency-Replayed") == "true"


async def test_a_repeated_trigger_replay_or_outcome_gets_the_first_answer(server: Server) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=404)
    first = await _post(server, TRIGGER, key="t")
    assert (first[0], first[1]["status"], first[2]) == (200, "created", False)
    delivery_id = first[1]["deliveryId"]
    await server.delivery(delivery_id, "dlq")
    assert await _post(server, TRIGGER, key="t") == (200, first[1], True), (
        "it does not queue the dead one again"
    )
    other = TRIGGER.replace("john", "jane")
    assert (await _post(server, other, key="t"))[0] == 422

    server.rms.run(Behave())
    replay = f"/dlq/{quote(delivery_id)}/replay"
    for replayed in (False, True):
        assert await _post(server, replay, key="r") == (200, {"id": delivery_id, "replayed": True}, replayed)
    await server.delivery(delivery_id, "delivered")

    tiers = f"/properties/{P}/trigger-renewal-events"
    report = await _post(server, tiers, {"tier": "medium"}, key="m")
    assert (report[0], report[1]["counts"]["created"]) == (200, 2)
    assert await _post(server, tiers, {"tier": "medium"}, key="m") == (200, report[1], True)
    assert (await _post(server, "/dlq/replay", {"dryRun": False}, key="a"))[2] is False
    assert (await _post(server, "/dlq/replay", {"dryRun": False}, key="a"))[2] is True

    order = {"residentId": "john", "leaseId": "lease-john", "outcome": "left", "decidedOn": "2026-04-30"}
    outcome = await _post(server, "/outcomes", order, key="o")
    assert (outcome[0], outcome[2]) == (201, False)
    assert await _post(server, "/outcomes", order, key="o") == (201, outcome[1], True)
    assert (await _post(server, "/outcomes", {**order, "outcome": "renewed"}, key="o"))[0] == 422
