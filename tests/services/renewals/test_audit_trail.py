"""What people change is on the audit trail, in the commit of the change: one is not without the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from holdfast.kit.audit import AuditEvent
from holdfast.model import Document
from holdfast.services.renewals.models import DeliveryState, Outcome, PropertyRules, RmsEndpoint
from holdfast.simulators.rms import Behave
from holdfast.store import Query, Store
from holdfast.store.commit import Commit, Write
from tests.services.renewals.server import P, Server

OUTCOME: Final = {
    "residentId": "jane", "leaseId": "lease-jane", "outcome": "left", "decidedOn": "2026-03-01",
}  # fmt: skip
# What is asked for, what it changes, and what the trail says.
CHANGES: Final[list[tuple[str, str, Any, type[Document], str, str]]] = [
    ("PUT", f"/properties/{P}/endpoint", {"url": "https://rms.example/1"}, RmsEndpoint, "endpoint_set", P),
    ("PUT", f"/properties/{P}/endpoint", {"url": "https://rms.example/2"}, RmsEndpoint, "endpoint_set", P),
    ("POST", f"/properties/{P}/endpoint/rotate", {}, RmsEndpoint, "secret_rotated", P),
    ("PUT", f"/properties/{P}/rules", {"send": "high"}, PropertyRules, "rules_set", P),
    ("POST", "/outcomes", OUTCOME, Outcome, "outcome", "lease-jane"),
]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[set[type[Document]]]:
    """What is written together, commit by commit."""
    seen, made = list[set[type[Document]]](), Store._commit

    def noted(store: Store, writes: Sequence[Write]) -> Commit:
        seen.append({write.schema.cls for write in writes})
        return made(store, writes)

    monkeypatch.setattr(Store, "_commit", noted)
    return seen


async def test_a_change_and_its_entry_on_the_trail_are_one_commit(
    server: Server, commits: list[set[type[Document]]]
) -> None:
    for method, path, body, cls, action, subject in CHANGES:
        commits.clear()
        status, answer = await server.ask(method, path, json=body)
        assert status in (200, 201), answer
        (together,) = [one for one in commits if cls in one]
        assert AuditEvent in together, (method, path)
        query = Query(AuditEvent).where("subject", "==", subject).order_by("-sequence").limit(1)
        (last,) = (await server.store.query(query)).docs
        assert last.action == f"renewals.{action}"
        assert last.actor
    assert (await server.renewals.context.audit("-").verify()).intact


async def test_a_change_that_is_refused_leaves_nothing_on_the_trail(server: Server) -> None:
    before = await server.store.count(Query(AuditEvent).order_by("sequence"))
    for method, path, body in (
        ("PUT", "/properties/nowhere/endpoint", {"url": "https://rms.example/1"}),
        ("PUT", f"/properties/{P}/endpoint", {"url": "javascript:alert(1)"}),
        ("POST", f"/properties/{P}/endpoint/rotate", {}),
        ("PUT", "/properties/nowhere/rules", {}),
        ("POST", "/outcomes", {**OUTCOME, "residentId": "nobody"}),
    ):
        status, _ = await server.ask(method, path, json=body)
        assert status in (404, 422), (method, path)
    assert await server.store.count(Query(AuditEvent).order_by("sequence")) == before


async def test_switching_an_endpoint_to_what_it_is_leaves_nothing_on_the_trail(
    server: Server,
) -> None:
    await server.endpoint()
    path, switched = f"/properties/{P}/endpoint/act", Query(AuditEvent).where("subject", "==", P)
    for act in ("enable", "pause", "pause", "resume", "resume"):
        await server.post(path, {"act": act})
    entries = (await server.store.query(switched.order_by("-sequence").limit(10))).docs
    assert [one.action.removeprefix("renewals.") for one in entries] == [
        "endpoint_resume", "endpoint_pause", "endpoint_set",
    ]  # fmt: skip


async def test_a_replay_and_its_entry_on_the_trail_are_one_commit_and_no_replay_is_no_entry(
    server: Server, commits: list[set[type[Document]]]
) -> None:
    await server.calculate()
    await server.endpoint(failure_rate=1.0, failure_status=400)
    told = await server.post(f"/properties/{P}/residents/john/trigger-renewal-event")
    await server.delivery(told["deliveryId"], "dlq")
    server.rms.run(Behave())
    commits.clear()
    for replayed in (True, False):
        assert (await server.post(f"/dlq/{told['deliveryId']}/replay"))["replayed"] is replayed
    await server.delivery(told["deliveryId"], "delivered")
    assert any({DeliveryState, AuditEvent} <= one for one in commits)
    entries = Query(AuditEvent).where("action", "==", "renewals.replayed").order_by("-sequence")
    assert [one.subject for one in (await server.store.query(entries)).docs] == [told["deliveryId"]]
