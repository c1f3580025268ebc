"""A store full of what an operator meets: deliveries in every state, dead letters, messages, channels."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.kit.activity import ActivityMinute
from holdfast.kit.audit import AuditEntry
from holdfast.kit.channels import Watch
from holdfast.kit.channels.models import OpenChannel
from holdfast.kit.connections import Connection
from holdfast.kit.inbox import InboxItem
from holdfast.kit.metering import Meter
from holdfast.kit.outbox import Attempt, DeadLetter, Delivery, Endpoint
from holdfast.kit.runs import RunDocument, StepSummary
from holdfast.kit.runs.models import StepStatus
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.runtime import Runtime
from holdfast.store import Write, create, patch, put

TENANT: Final = "-"
_ENDPOINTS: Final = ("rms-harbour-view", "rms-mill-lane", "ledger", "crm-webhooks")
_TYPES: Final = ("lease.renewed", "lease.ended", "resident.risk.changed", "event.updated")


async def fill(runtime: Runtime, *, deliveries: int = 160, seed: int = 7) -> None:
    """The same data each time, as old as it says it is."""
    dice, now = random.Random(seed), runtime.clock.now()
    store = runtime.store.tenant(TENANT)
    born, ended = _deliveries(dice, now, deliveries)
    await store.commit(*_endpoints(now), *born)
    await store.commit(*ended)
    await store.commit(*_inbox(now), *_watches(dice, now), *_slots(now), *_pulses(dice, now))
    await store.commit(*_connections(now))
    for stage in _runs(now):
        await store.commit(*stage)
    trail = runtime.audit(TENANT)
    for actor, action, subject in (
        ("cli:root", "token.created", "deploys"),
        ("user:ann", "session.began", "ann"),
        ("user:ann", "delivery.replayed", "event-7~ledger"),
        ("user:ben@acme.example", "schedule.switched_off", "-_prune"),
    ):
        await trail.append(AuditEntry(action=action, actor=actor, subject=subject, details={"from": "scene"}))
    meter = Meter(runtime.store, tenant_id=TENANT)
    facts = [
        (f"fact-{n}", {"deliveries": dice.randint(10, 90)}, now - timedelta(days=n / 4)) for n in range(40)
    ]
    await meter.record(facts)
    for name, taken, limit in (("runs 2026-11", 46, 50), ("seats", 3, 10), ("sources", 5, 5)):
        await store.commit(*meter.writes_take(name, taken, limit=limit))


def _endpoints(now: datetime) -> list[Write]:
    made = [
        Endpoint(id=id, url=f"https://{id}.example/hooks", created_at=now - timedelta(days=9))
        for id in _ENDPOINTS
    ]
    made[3].status, made[3].reason = "paused", "410 Gone, five times in a row"
    return [put(one) for one in made]


def _deliveries(dice: random.Random, now: datetime, count: int) -> tuple[list[Write], list[Write]]:
    born: list[Write] = []
    ended: list[Write] = []
    for number in range(count):
        at = now - timedelta(seconds=number * 45 + dice.random() * 30)
        endpoint, kind = dice.choice(_ENDPOINTS), dice.choice(_TYPES)
        status = dice.choices(("delivered", "failed", "dead", "pending"), (80, 12, 6, 4))[0]
        first, last = _delivery(f"evt_{number:04}", endpoint, kind, at=at, now=now, status=status)
        born, ended = born + first, ended + last
    return born, ended


def _delivery(
    event_id: str, endpoint: str, kind: str, *, at: datetime, now: datetime, status: str
) -> tuple[list[Write], list[Write]]:
    """How it was born, and what became of it: a lifecycle has no shorter way."""
    body = {"id": event_id, "type": kind, "data": {"resident": "Ada Moreau", "unit": "4B", "score": 71}}
    tries = {"delivered": 1, "failed": 3, "dead": 8}.get(status, 0)
    answers = [Attempt(
        at=at + timedelta(seconds=5 * 2**n), latency_ms=40 + 13 * n, fence=n + 1,
        status=200 if status == "delivered" else 503,
        excerpt='{"received": true}' if status == "delivered" else '{"error": "out of order"}',
    ) for n in range(tries)]  # fmt: skip
    one = Delivery(
        id=f"{event_id}~{endpoint}", event_id=event_id, endpoint_id=endpoint, event_type=kind,
        body=json.dumps(body).encode(), occurred_at=at, created_at=at, status="sending", attempts=answers,
        attempt_count=tries, last_status=answers[-1].status if answers else None,
    )  # fmt: skip
    if status == "dead":
        one.reason, one.finished_at = "503 Service Unavailable, 8 times", now
    elif status == "failed":
        one.reason, one.next_attempt_at = "503 Service Unavailable", now + timedelta(hours=1, seconds=tries)
    elif status == "pending":
        one.next_attempt_at = now + timedelta(minutes=5)
    else:
        one.finished_at = at + timedelta(seconds=1)
    letter = DeadLetter(
        id=one.id, event_id=event_id, endpoint_id=endpoint, event_type=kind, reason=one.reason, died_at=at
    )
    ended = msgspec.structs.replace(one, status=status)
    return [create(one)], [put(ended), *([put(letter)] if status == "dead" else [])]


def _inbox(now: datetime) -> list[Write]:
    return [
        create(InboxItem.received(
            tenant_id=TENANT, source=source, message_id=mark, received_at=now - timedelta(minutes=4 * n),
            due_at=now + timedelta(hours=1), reason=reason, tries=n, body=b"{}",
            headers={"content-type": "application/json"},
        ))
        for n, (source, mark, reason) in enumerate((
            ("google-calendar", "chan-91:4711", ""),
            ("github", "72d3162e-cc78-11e3", "the repository is not known here yet"),
            ("telegram", "update-88120", ""),
        ))
    ]  # fmt: skip


def _watches(dice: random.Random, now: datetime) -> list[Write]:
    writes = []
    for number in range(9):
        left = timedelta(hours=dice.choice((5, 20, 50, 90, 130, 160)))
        watch = Watch(
            id=f"calendar-sync-{number}", name="calendar-sync", watched_id=f"person{number}@hoge.example",
            status="watched", current=OpenChannel(channel_id=f"ch-{number}", ends_at=now + left),
            renew_at=now + left - timedelta(hours=4), opened_at=now - timedelta(days=2),
        )  # fmt: skip
        if number == 4:
            watch.status, watch.current, watch.renew_at = "opening", None, None
            watch.failures, watch.error = 3, "403: the calendar is not shared with us"
        writes.append(put(watch))
    return writes


def _slots(now: datetime) -> list[Write]:
    names = {"renew-channels": "0 */6 * * *", "prune": "30 3 * * *", "nightly-scores": "0 2 * * *"}
    writes: list[Write] = []
    for name, cron in names.items():
        at = now + timedelta(hours=len(name))
        writes.append(put(Schedule(
            tenant_id=TENANT, name=name, cron=cron, zone="Europe/Zurich", missed="once", slot_at=at,
            next_at=at,
            last_status="failed" if name == "prune" else "done",
        )))  # fmt: skip
        for back in range(1, 4):
            slot = now - timedelta(days=back)
            writes.append(put(SlotRun(
                tenant_id=TENANT, schedule_id=f"{TENANT}_{name}", slot=slot.strftime("%Y%m%dT%H%M"),
                slot_at=slot, status="running", attempts=1, started_at=slot,
            )))  # fmt: skip
    return writes


def _connections(now: datetime) -> list[Write]:
    made = [
        Connection(
            id=f"{number:032x}", provider="google", account=f"10420{number}", name=f"{name}@hoge.example",
            scopes=["https://www.googleapis.com/auth/calendar"], access_token="never-shown",
            asked=["https://www.googleapis.com/auth/calendar", "openid"],
            connected_at=now - timedelta(days=number + 1), refreshed_at=now - timedelta(minutes=11),
            expires_at=now + timedelta(minutes=49),
        )
        for number, name in enumerate(("alice", "bob", "cleo"))
    ]  # fmt: skip
    made[1].failures, made[1].reason = 2, "503: the service is currently unavailable"
    made[1].retry_at = now + timedelta(minutes=4)
    return [create(one) for one in made]


def _runs(now: datetime) -> list[list[Write]]:
    """Runs in every state, as they came to be: born, claimed, ended."""
    born: list[Write] = []
    moved: list[Write] = []
    ended: list[Write] = []
    for number, status in enumerate(("pending", "running", "completed", "failed", "cancelled", "completed")):
        at, id = now - timedelta(minutes=3 * number + 1), f"run-{number:03}"
        first, last = at + timedelta(seconds=2), at + timedelta(seconds=48)
        born.append(create(RunDocument(
            id=id, type="autopilot" if number % 2 else "triage", created_at=at, updated_at=at, due_at=at,
            input={"pr": 40 + number, "api_token": "ghp_never"}, steps=_steps(id, status, first),
        )))  # fmt: skip
        if status == "pending":
            continue
        moved.append(patch(RunDocument, id, changes={
            "status": "running", "started_at": first, "held_by": "harbour-1-5c", "fence": 3,
            "due_at": now + timedelta(seconds=40), "deadline_at": at + timedelta(hours=1),
        }))  # fmt: skip
        if status != "running":
            error = {"failed": "review: 502 from the model, 4 times", "cancelled": "wrong branch"}.get(status)
            ended.append(patch(RunDocument, id, changes={
                "status": status, "completed_at": last, "duration_ms": 46_000, "held_by": "", "due_at": None,
                "error": error, "result": {"merged": True} if status == "completed" else None,
            }))  # fmt: skip
    return [born, moved, ended]


def _steps(run_id: str, status: str, first: datetime) -> list[StepSummary]:
    """Four steps; the third is where a run that did not complete stands."""
    stands: dict[str, tuple[StepStatus, StepStatus, StepStatus, StepStatus]] = {
        "pending": ("pending", "pending", "pending", "pending"),
        "running": ("completed", "completed", "running", "pending"),
        "completed": ("completed", "completed", "completed", "completed"),
        "failed": ("completed", "completed", "failed", "skipped"),
        "cancelled": ("completed", "completed", "skipped", "skipped"),
    }
    made = []
    for place, (name, state) in enumerate(
        zip(("fetch", "plan", "review", "merge"), stands[status], strict=True)
    ):
        step = StepSummary(id=f"step-{place + 1:03}-{name}", run_id=run_id, name=name, status=state)
        if state in ("completed", "failed", "running"):
            step.started_at, step.attempts = first + timedelta(seconds=11 * place), 1
        if step.started_at and state != "running":
            step.completed_at, step.duration_ms = step.started_at + timedelta(seconds=10), 10_000
        if state == "failed":
            step.attempts, step.failures, step.error = 4, 4, "RetryLaterError: 502 from the model"
        made.append(step)
    return made


def _pulses(dice: random.Random, now: datetime) -> list[Write]:
    minute = now.replace(second=0, microsecond=0)
    writes = []
    for back in range(60):
        at = minute - timedelta(minutes=back)
        busy = 40 + 25 * dice.random() + (60 if 20 < back < 30 else 0)
        broken = 30 * dice.random() if 10 < back < 20 else dice.random() * 3
        writes.append(put(ActivityMinute(
            id=at.strftime("%Y%m%d%H%M"), at=at, handled=int(busy / 2), delivered=int(busy),
            failed=int(broken),
            dead=int(broken / 6), waited_s=round(broken * 1.7, 1),
        )))  # fmt: skip
    return writes
