"""Each part of the kit under a service's own collection names, ids and fields, on every engine."""

from __future__ import annotations

import asyncio
import re
import types
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from holdfast.app import open_store
from holdfast.errors import (
    AlreadyExistsError,
    AppendOnlyError,
    DeclarationError,
    InvalidError,
    UnknownFieldError,
)
from holdfast.kit.audit import Audit, AuditEntry, AuditEvent, AuditFields, AuditHead, AuditModels
from holdfast.kit.connections import (
    CONNECTION_INDEXES,
    Connection,
    ConnectionFields,
    ConnectionModels,
    Connections,
    Consent,
    ConsentPurpose,
)
from holdfast.kit.idempotency import Done, Idempotency, IdempotencyDocument, StoredResponse, Ticket
from holdfast.kit.leases import LeaseDocument, Leases
from holdfast.kit.metering import Allowance, Meter, MeterModels, UsageEvent, UsageSum
from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint, OutboxModels
from holdfast.kit.runs import KIT as KIT_RUNS
from holdfast.kit.runs import RunFields, Runner, Runs, Step, Workflow
from holdfast.kit.vault import Vault
from holdfast.model import CompositeId, Document, TimestampId, document, schema_of
from holdfast.service import RunPart
from holdfast.store import Increment, Query, Store, create, delete, patch
from holdfast.testing import ManualClock
from tests.examples import gwi_parts as gwi
from tests.kit.fake_oauth_provider import BACK, FakeOAuthProvider, begin

ACME = "gh-org-1"
KIT: list[type[Document]] = [
    AuditEvent, AuditHead, UsageEvent, UsageSum, Allowance, *KIT_RUNS.documents, LeaseDocument,
    IdempotencyDocument, Connection, Consent,
]  # fmt: skip
DOCUMENTS: list[type[Document]] = [
    *KIT, *gwi.AUDIT.all, *gwi.METER.all, *gwi.RUNS.documents, gwi.ReviewLock, gwi.ReviewIdempotency,
    *gwi.GOOGLE.all,
]  # fmt: skip
NOV, DEC = datetime(2026, 11, 30, 23, 0, tzinfo=UTC), datetime(2026, 12, 1, 1, 0, tzinfo=UTC)


@document(
    "gwi_audit_events/{id}", id=schema_of(gwi.ReviewEvent).declared.id, tenant="tenant_id",
    indexes=schema_of(gwi.ReviewEvent).declared.indexes,
)  # fmt: skip
class ForgedReview(gwi.ReviewEvent, rename="camel"):
    """The same collection as another program would see it that respects no declaration."""


def _stored(doc: Document) -> dict[str, Any]:
    return cast(dict[str, Any], msgspec.to_builtins(doc))


async def _count(store: Store, *kinds: type[Document]) -> list[int]:
    return [len((await store.privileged().query(Query(kind).limit(500))).items) for kind in kinds]


async def test_an_own_trail_has_the_given_names_ids_and_fields(kit_store: Store) -> None:
    audit = Audit(kit_store, ACME, models=gwi.AUDIT)
    entry = AuditEntry(
        action="run_started", actor="webhook", subject="run-1", fields={"run_id": "run-1"}, intent="review"
    )
    (event,) = await audit.append(entry)
    stored = _stored(event)
    assert re.fullmatch(r"evt-[0-9a-z]+-[0-9a-z]+", stored["id"])
    assert {"eventType", "timestamp", "runId", "changeSummary"} <= stored.keys()
    assert (stored["eventType"], stored["runId"], stored["intent"]) == ("run_started", "run-1", "review")
    with pytest.raises(AppendOnlyError):
        await kit_store.tenant(ACME).commit(delete(gwi.ReviewEvent, event.id))
    assert (await audit.verify()).events == 1
    assert await _count(kit_store, AuditEvent, AuditHead) == [0, 0]


async def test_an_own_trail_and_the_kits_are_two_chains_of_one_tenant(kit_store: Store) -> None:
    trails = [Audit(kit_store, ACME), Audit(kit_store, ACME, models=gwi.AUDIT)]
    for number in range(4):
        await asyncio.gather(*(one.append(AuditEntry(action=f"a{number}", actor="ann")) for one in trails))
    verified = [await one.verify() for one in trails]
    assert [(one.intact, one.events) for one in verified] == [(True, 4), (True, 4)]


async def test_changes_moves_and_removals_in_an_own_trail_are_found(kit_store: Store, kit_url: str) -> None:
    audit = Audit(kit_store, ACME, models=gwi.AUDIT)
    events: list[AuditFields] = [
        (await audit.append(AuditEntry(action="act", actor="ann", subject=str(n))))[0] for n in range(5)
    ]
    store = await open_store(kit_url, [ForgedReview])
    forger = store.tenant(ACME)
    found = await forger.get(ForgedReview, events[2].id)
    assert found is not None
    await forger.commit(patch(ForgedReview, found.doc.id, changes={"run_id": "run-9"}))
    assert await _fault(audit) == ("changed", 3)
    await forger.commit(delete(ForgedReview, found.doc.id))
    assert await _fault(audit) == ("missing", 3)
    moved = msgspec.structs.replace(found.doc, id="evt-moved-1")
    await forger.commit(create(moved))
    assert await _fault(audit) == ("changed", 3), "its hash covers its id"
    await store.close()


async def _fault(audit: Audit) -> tuple[str, int] | None:
    fault = (await audit.verify()).fault
    return None if fault is None else (fault.kind, fault.sequence)


async def test_an_own_trail_without_what_verifying_needs_is_refused_where_it_is_declared() -> None:
    @document("bare_events/{id}", tenant="tenant_id")
    class BareEvent(AuditFields, rename="camel"):
        pass

    with pytest.raises(DeclarationError, match=r'BareEvent lacks Index\("sequence"\).*append_only=True'):
        AuditModels(event=BareEvent, head=gwi.ReviewHead)
    with pytest.raises(DeclarationError, match="shares AuditHead with the kit"):
        AuditModels(event=gwi.ReviewEvent)


@pytest.mark.parametrize(
    ("kit", "fields", "models"),
    [
        (Endpoint, Endpoint, lambda cls: OutboxModels(endpoint=cls)),
        (Delivery, Delivery, lambda cls: OutboxModels(delivery=cls)),
        (DeadLetter, DeadLetter, lambda cls: OutboxModels(dead_letter=cls)),
        (Connection, ConnectionFields, lambda cls: ConnectionModels(connection=cls)),
        (AuditEvent, AuditFields, lambda cls: AuditModels(event=cls, head=gwi.ReviewHead)),
        (KIT_RUNS.run, RunFields, lambda cls: RunPart(models=msgspec.structs.replace(KIT_RUNS, run=cls))),
    ],
)
def test_own_documents_that_lists_over_all_tenants_cannot_read_are_refused_where_they_are_declared(
    kit: type[Document], fields: type[Document], models: Callable[[Any], object]
) -> None:
    given = schema_of(kit).declared
    bare: Any = document(
        "bare/{id}", id=given.id, tenant="tenant_id", claim=given.claim, append_only=given.append_only,
        lifecycle=given.lifecycle, indexes=[one for one in given.indexes if one.across != "tenants"],
    )(types.new_class("Bare", (fields,), {"rename": "camel"}))  # fmt: skip
    with pytest.raises(DeclarationError, match=r'Bare lacks Index\(.*, across="tenants"\)'):
        models(bare)


def test_own_deliveries_that_store_an_unknown_field_with_an_attempt_are_refused_where_they_are_declared() -> (
    None
):
    given = schema_of(Delivery).declared

    @document(
        "own_deliveries/{id}", tenant="tenant_id", claim=given.claim, lifecycle=given.lifecycle,
        indexes=given.indexes,
    )  # fmt: skip
    class OwnDelivery(Delivery, rename="camel"):
        attempt_fields = ("answer",)

    with pytest.raises(UnknownFieldError, match="answer"):
        OutboxModels(delivery=OwnDelivery)


async def _add(meter: Meter, store: Store, fact: str, metrics: dict[str, int], at: datetime) -> None:
    await store.tenant(ACME).transact(lambda tx: meter.add(tx, fact, metrics, at=at, kind="tokens_used"))


async def test_an_own_meter_keeps_one_document_per_day_month_and_tenant(kit_store: Store) -> None:
    meter = Meter(kit_store, tenant_id=ACME, models=gwi.METER)
    await _add(meter, kit_store, "run-1", {"runs": 1, "inputTokens": 40}, NOV)
    await _add(meter, kit_store, "run-2", {"inputTokens": 2, "apiCalls": 5}, NOV)
    with pytest.raises(AlreadyExistsError):
        await _add(meter, kit_store, "run-2", {"inputTokens": 2}, NOV)
    acme = kit_store.tenant(ACME)
    day = await acme.get(gwi.ReviewUsageDaily, f"{ACME}_2026-11-30")
    month = await acme.get(gwi.ReviewUsageMonthly, f"{ACME}_2026-11")
    now = await acme.get(gwi.ReviewUsageNow, ACME)
    assert day is not None
    assert month is not None
    assert now is not None
    expected = {"runs": 1, "inputTokens": 42, "apiCalls": 5}
    assert {name: _stored(day.doc)[name] for name in expected} == expected
    assert {name: _stored(month.doc)[name] for name in expected} == expected
    snapshot = _stored(now.doc)
    assert (snapshot["currentMonth"], snapshot["runsThisMonth"]) == ("2026-11", 1)
    assert snapshot["inputTokensThisMonth"] == 42
    assert await meter.month_sums("2026-11") == expected
    assert await _count(kit_store, UsageEvent, UsageSum) == [0, 0]


async def test_a_new_month_starts_at_zero_and_takes_no_late_facts(kit_store: Store) -> None:
    meter = Meter(kit_store, tenant_id=ACME, models=gwi.METER)
    for number, at in enumerate([NOV, DEC, NOV, DEC]):
        await _add(meter, kit_store, f"run-{number}", {"runs": 1}, at)
    now = await kit_store.tenant(ACME).get(gwi.ReviewUsageNow, ACME)
    assert now is not None
    assert (now.doc.current_month, now.doc.runs_this_month) == ("2026-12", 2)
    assert [await meter.month("runs", month) for month in ("2026-11", "2026-12")] == [2, 2]
    assert [await meter.rebuild(month) for month in ("2026-11", "2026-12")] == [[], []]


async def test_sums_of_an_own_meter_are_exact_under_concurrency_and_drift_is_mended(kit_store: Store) -> None:
    meters = [Meter(kit_store, tenant_id=ACME, models=gwi.METER) for _ in range(3)]
    facts = [[(f"f{n % 8}", {"runs": 1}, DEC) for n in range(writer, 10 + writer)] for writer in range(3)]
    recorded = await asyncio.gather(*(m.record(some) for m, some in zip(meters, facts, strict=True)))
    assert sum(one.counted for one in recorded) == 8
    meter, acme = meters[0], kit_store.tenant(ACME)
    assert await meter.rebuild("2026-12") == []
    for kind, id in (
        (gwi.ReviewUsageDaily, f"{ACME}_2026-12-01"),
        (gwi.ReviewUsageMonthly, f"{ACME}_2026-12"),
    ):
        await acme.commit(patch(kind, id, changes={"runs": Increment(7)}))
    await acme.commit(patch(gwi.ReviewUsageNow, ACME, changes={"runs_this_month": Increment(-1)}))
    drifts = await meter.rebuild("2026-12", mend=True)
    assert [(one.period, one.stored - one.ledger) for one in drifts] == [
        ("2026-12", 7), ("2026-12-01", 7), ("snapshot 2026-12", -1),
    ]  # fmt: skip
    assert await meter.rebuild("2026-12") == []


async def test_an_own_meter_limits_exactly_and_refuses_what_it_has_no_field_for(kit_store: Store) -> None:
    meter, acme = Meter(kit_store, tenant_id=ACME, models=gwi.METER), kit_store.tenant(ACME)
    await acme.commit(*meter.writes_take("runs 2026-12", limit=2))
    assert (await meter.used("runs 2026-12"), (await meter.allowances()).docs[0].limit) == (1, 2)
    await acme.commit(*meter.writes_give_back("runs 2026-12"))
    assert await meter.used("runs 2026-12") == 0
    with pytest.raises(InvalidError, match="no field for minutes"):
        await _add(meter, kit_store, "run-1", {"minutes": 1}, DEC)
    with pytest.raises(DeclarationError, match="use `add`"):
        meter.writes("run-1", {"runs": 1}, at=DEC)


async def test_a_meter_whose_id_lets_a_fact_count_twice_is_refused_where_it_is_declared() -> None:
    @document("loose_usage/{id}", id=CompositeId("tenant_id", "at"), tenant="tenant_id", append_only=True)
    class LooseUsage(gwi.ReviewUsage, rename="camel"):
        pass

    with pytest.raises(DeclarationError, match=r"LooseUsage lacks id=CompositeId\('tenant_id', 'fact'\)"):
        MeterModels(event=LooseUsage, allowance=gwi.ReviewAllowance, sums=gwi.METER.sums)


async def test_own_runs_have_steps_with_their_own_ids_and_checkpoints(kit_store: Store) -> None:
    workflow, acme = Workflow("autopilot"), kit_store.tenant(ACME)

    @workflow.step()
    async def triage(step: Step) -> dict[str, int]:
        return {"complexity": 3}

    runs = Runs(acme, models=gwi.RUNS)
    started = await runs.start(workflow, fields={"repo_id": "gh-repo-7"})
    await Runner(kit_store.privileged(), [workflow], models=gwi.RUNS).work_off()
    run, (step,) = await runs.get(started.id), await runs.steps(started.id)
    assert run is not None
    assert (run.status, run.result) == ("completed", {"complexity": 3})
    assert re.fullmatch(r"step-[0-9a-z]+-[0-9a-z]+", step.id)
    assert [one.id for one in run.steps] == [step.id]
    assert _stored(step)["agent"] == "triage"
    assert await _count(kit_store, gwi.ReviewRun, gwi.ReviewCheckpoint) == [1, 1]
    assert await _count(kit_store, KIT_RUNS.run, KIT_RUNS.checkpoint) == [0, 0]


async def test_own_locks_and_idempotency_records_are_in_the_given_collections(kit_store: Store) -> None:
    acme = kit_store.tenant(ACME)
    leases = Leases(acme, kind=gwi.ReviewLock)
    async with leases.hold("run-lock-run-1", owner="w1", purpose="run") as lease:
        await acme.commit(lease.guard())
        assert await leases.acquire("run-lock-run-1", owner="w2") is None
    idempotency = Idempotency(acme, kind=gwi.ReviewIdempotency)

    async def act(ticket: Ticket) -> Done:
        return Done(StoredResponse(status=202, body={"id": "run-1"}))

    answers = [await idempotency.run("k1", b"{}", act) for _ in range(2)]
    assert [(one.answer.status, one.replayed) for one in answers] == [(202, False), (202, True)]
    record = (await kit_store.privileged().query(Query(gwi.ReviewIdempotency))).items[0]
    assert (_stored(record.doc)["key"], _stored(record.doc)["requestKey"]) == (record.key, "k1")
    assert await _count(kit_store, gwi.ReviewLock, LeaseDocument, IdempotencyDocument) == [1, 0, 0]


async def test_own_connections_are_signed_in_refreshed_and_ended_under_the_given_names(
    kit_store: Store, vault: Vault, registrar: FakeOAuthProvider, clock: ManualClock
) -> None:
    purpose = ConsentPurpose(name="c4lendar", provider="registrar", scopes=["calendar"], models=gwi.GOOGLE)
    connections = Connections(kit_store, vault, {"registrar": registrar}, purposes={"c4lendar": purpose})
    link = connections.link("c4lendar", tenant_id="-100", payload={"user": 555}, redirect_uri=BACK)
    await kit_store.privileged().commit(link.write)
    query = parse_qs(urlsplit((await connections.open_link(link.token, bound_to="b")).url).query)
    made = await connections.finish(query["state"][0], query["code"][0], bound_to="b")
    assert made.id == "-100:1042"
    stored = _stored(made)
    expected = {
        "chat_id": "-100", "google_sub": "1042", "google_email": "ann@hoge.jp", "scopes": "calendar",
        "revoked": 0, "connected_by_telegram_user_id": 555,
    }  # fmt: skip
    assert {name: stored[name] for name in expected} == expected
    assert "refresh" not in stored["refresh_token_encrypted"], "it is sealed"
    own = connections.of(gwi.GOOGLE)
    assert own is connections.of(gwi.GOOGLE)
    clock.tick(3_600)
    assert (await own.token(made.id)).startswith("access-")
    assert registrar.refreshes == 1
    ended = await own.revoke(made.id)
    assert (_stored(ended)["revoked"], len(registrar.revoked)) == (1, 1)
    assert await _count(kit_store, gwi.GoogleConnection, Connection) == [1, 0]
    kits = await connections.finish(*await begin(connections))
    assert (kits.id, await _count(kit_store, Connection)) != (made.id, [0])


async def test_other_classes_without_what_their_part_needs_are_refused(kit_store: Store) -> None:
    @document("bare_locks/{lock_id}", tenant="tenant_id")
    class BareLock(gwi.ReviewLock, rename="camel"):
        pass

    @document("bare_connections/{id}", id=TimestampId("c"), tenant="tenant_id", indexes=CONNECTION_INDEXES)
    class BareConnection(gwi.GoogleConnection, rename=str):
        pass

    with pytest.raises(DeclarationError, match="BareLock lacks claim=Claim"):
        Leases(kit_store, kind=BareLock)
    with pytest.raises(DeclarationError, match="BareConnection needs a provided id or CompositeId"):
        ConnectionModels(connection=BareConnection)
