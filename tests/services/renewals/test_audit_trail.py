"""Every act of people is on the audit trail, in the commit of its change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.kit.access.models import ApiToken
from holdfast.kit.audit import AuditEvent, AuditHead
from holdfast.model import Document
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import (
    CalculationJob,
    DeliveryState,
    Outcome,
    Property,
    PropertyRules,
    SourceState,
    TriggerJob,
)
from holdfast.simulators.rms import Behave
from holdfast.store import Query, Store
from holdfast.store.commit import Commit, Write
from tests.services.renewals.server import P, Server, calculating, serving, settle_in

OUTCOME: Final = {
    "residentId": "jane", "leaseId": "lease-jane", "outcome": "left", "decidedOn": "2026-03-01",
}  # fmt: skip
CALCULATE: Final = f"/properties/{P}/renewal-risk/calculate"
JOHN: Final = f"/properties/{P}/residents/john/trigger-renewal-event"
# The request, what it changes, and the action and subject of the audit event.
CHANGES: Final[list[tuple[str, str, Any, type[Document], str, str | None]]] = [
    ("PUT", f"/properties/{P}/rules", {"send": "nothing"}, PropertyRules, "rules_set", P),
    ("POST", "/outcomes", OUTCOME, Outcome, "outcome", "lease-jane"),
    ("POST", CALCULATE, {}, CalculationJob, "calculation_started", P),
    ("POST", JOHN, {}, DeliveryState, "triggered", None),
    ("POST", f"/properties/{P}/trigger-renewal-events", {"tier": "medium"}, DeliveryState, "triggered", P),
]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[set[type[Document]]]:
    """What is written together, commit by commit."""
    seen, made = list[set[type[Document]]](), Store._commits

    def noted(store: Store, commits: Iterable[Sequence[Write]]) -> Sequence[Commit]:
        checked = made(store, commits)
        seen.extend({write.schema.cls for write in commit.writes} for commit in checked)
        return checked

    monkeypatch.setattr(Store, "_commits", noted)
    return seen


async def test_a_change_and_its_audit_event_are_one_commit(
    tmp_path: Path, commits: list[set[type[Document]]]
) -> None:
    async with serving(tmp_path, working=False) as server:
        await settle_in(server.store)
        async with calculating(server):
            await server.calculate()
        await server.create_endpoint(P, "https://rms.example/1")
        for method, path, body, cls, action, subject in CHANGES:
            commits.clear()
            status, answer = await server.ask(method, path, json=body)
            assert status in (200, 201, 202), answer
            (together,) = [one for one in commits if cls in one]
            assert AuditEvent in together, (method, path)
            last = await newest(server)
            about = answer["eventId"] if subject is None else subject
            assert (last.action, last.subject, last.outcome) == (f"renewals.{action}", about, "done")
            assert last.actor
        assert (await server.runtime.audit("-").verify()).intact


async def newest(server: Server) -> AuditEvent:
    (event,) = (await server.store.query(Query(AuditEvent).order_by("-sequence").limit(1))).docs
    return event


async def test_a_trigger_job_and_its_audit_event_are_one_commit(
    tmp_path: Path, commits: list[set[type[Document]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.services.renewals.operations.AT_ONCE_MAX", 1)
    async with serving(tmp_path, working=False) as server:
        await settle_in(server.store)
        async with calculating(server):
            await server.calculate()
        await server.create_endpoint(P, "https://rms.example/1")
        commits.clear()
        job = await server.post(f"/properties/{P}/trigger-renewal-events", {"tier": "flagged"}, status=202)
        (together,) = [one for one in commits if TriggerJob in one]
        assert AuditEvent in together
        last = await newest(server)
        assert (last.action, last.details["job"]) == ("renewals.trigger_started", job["jobId"])


async def test_each_batch_of_triggered_events_has_an_audit_event_in_its_commit(
    server: Server, commits: list[set[type[Document]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.services.renewals.operations.BATCH", 2)
    await server.calculate()
    await server.endpoint()
    await server.change_endpoint("pause")
    commits.clear()
    await server.post(f"/properties/{P}/trigger-renewal-events", {"tier": "flagged"})
    written = [one for one in commits if AuditEvent in one and DeliveryState in one]
    assert len(written) == 2
    triggered = Query(AuditEvent).where("action", "==", "renewals.triggered").order_by("-sequence")
    events = (await server.store.query(triggered)).docs
    assert [one.details["created"] for one in events] == [1, 2]


async def test_an_import_is_on_record_before_its_first_row_and_with_its_end(
    tmp_path: Path, commits: list[set[type[Document]]]
) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "properties.csv").write_text("id,name\np1,Elm Court\n")
    async with serving(tmp_path, working=False) as server:
        commits.clear()
        await server.renewals.import_tables(server.by, Folder(folder))
        order = [(SourceState in one, AuditEvent in one) for one in commits if {SourceState, Property} & one]
        assert order == [(True, True), (False, False), (True, True)]
        page = await server.store.query(Query(AuditEvent).order_by("-sequence").limit(2))
        assert [(one.action, one.subject) for one in page.docs] == [
            ("renewals.imported", "export"), ("renewals.import_started", "export"),
        ]  # fmt: skip
        assert page.docs[0].details == {"properties": 1}


async def test_an_act_that_fails_is_on_record_as_failed_and_changes_nothing(
    server: Server, commits: list[set[type[Document]]]
) -> None:
    commits.clear()
    for method, path, body, action in (
        ("PUT", "/properties/nowhere/rules", {}, "rules_set"),
        ("POST", "/outcomes", {**OUTCOME, "residentId": "nobody"}, "outcome"),
        ("POST", "/properties/nowhere/renewal-risk/calculate", {}, "calculation_started"),
        ("POST", JOHN, {}, "triggered"),
    ):
        status, _ = await server.ask(method, path, json=body)
        assert status in (404, 409), (method, path)
        last = await newest(server)
        assert (last.action, last.outcome) == (f"renewals.{action}", "failed")
    assert {cls for one in commits for cls in one} - {ApiToken} == {AuditEvent, AuditHead}


async def test_joining_a_calculation_under_way_adds_no_audit_event(tmp_path: Path) -> None:
    async with serving(tmp_path, working=False) as server:
        await settle_in(server.store)
        first, second = [await server.post(CALCULATE, {}, status=202) for _ in range(2)]
        assert first["jobId"] == second["jobId"]
        started = Query(AuditEvent).where("action", "==", "renewals.calculation_started")
        events = (await server.store.query(started.order_by("-sequence"))).docs
        assert [one.details["job"] for one in events] == [first["jobId"]]


async def test_a_replay_and_its_audit_event_are_one_commit_and_no_replay_is_no_event(
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
    entries = Query(AuditEvent).where("action", "==", "dead_letter.replayed").order_by("-sequence")
    assert [one.subject for one in (await server.store.query(entries)).docs] == [told["deliveryId"]]
