"""What people do and its entry on the audit trail: both are kept, or neither."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.access import SignInLinks, User
from holdfast.kit.access.sessions import Session
from holdfast.kit.access.sign_in_links import SignInLink
from holdfast.kit.audit import Audit, AuditEntry, AuditEvent, AuditHead
from holdfast.kit.connections import Connection
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint
from holdfast.kit.runs import RunDocument
from holdfast.kit.schedules import Schedule
from holdfast.store import Query, create, patch, put
from tests.console.console_harness import PASSWORD, ConsoleHarness, console
from tests.console.desk import connect, desk
from tests.console.workshop import Workshop, runs_of
from tests.providers.provider_fixture import ALICE, a_setting

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An act is tried again a hundred times where somebody else was first; here none can succeed."""
    assert Audit.transact.__kwdefaults__ is not None
    monkeypatch.setitem(Audit.transact.__kwdefaults__, "attempts", 3)


async def _block_the_trail(harness: ConsoleHarness) -> None:
    """A head that has fallen back: the place of the next event is taken, so none can be written."""
    await Audit(harness.runtime.store, tenant_id="-").append(AuditEntry(action="first", actor="cli:me"))
    await harness.runtime.store.tenant("-").commit(put(AuditHead(tenant_id="-")))


async def test_what_cant_be_put_on_record_is_not_done(tmp_path: Path) -> None:
    workshop = Workshop()
    async with (
        a_setting() as setting,
        console(tmp_path, services=[desk(setting), workshop.service(works=False)]) as harness,
    ):
        store = harness.runtime.store.tenant("-")
        schedule = Schedule(
            tenant_id="-", name="nightly", cron="0 2 * * *", zone="UTC", missed="once", slot_at=AT,
            next_at=AT,
        )  # fmt: skip
        item = InboxItem.received(tenant_id="-", source="s", message_id="m", received_at=AT)
        local_dispatcher = Endpoint(id="rms", url="https://rms.example", created_at=AT)
        dead = Delivery(
            id="e1~rms", event_id="e1", endpoint_id="rms", event_type="paid", body=b"{}", occurred_at=AT,
            created_at=AT,
        )  # fmt: skip
        await store.commit(create(schedule), put(local_dispatcher), create(dead), create(item))
        for status in ("sending", "dead"):
            await store.commit(patch(Delivery, dead.id, changes={"status": status}))
        await store.commit(patch(InboxItem, "s_m", changes={"status": "parked", "finished_at": AT}))
        run, connection = (
            await runs_of(harness.runtime).start(workshop.chair),
            await connect(harness, setting, ALICE),
        )
        asked: list[tuple[str, dict[str, Any]]] = [
            ("schedules/-_nightly/run", {}), ("schedules/-_nightly/switch", {"on": False}),
            (f"runs/holdfast_runs/{run.id}/cancel", {}), (f"runs/holdfast_runs/{run.id}/wake", {}),
            (f"connections/{connection.id}/revoke", {}), ("inbox/s_m/replay", {}),
            ("deliveries/holdfast/e1~rms/replay", {}),
        ]  # fmt: skip
        places: list[tuple[Any, str]] = [
            (Schedule, "-_nightly"), (RunDocument, run.id), (Connection, connection.id), (InboxItem, "s_m"),
            (Delivery, "e1~rms"),
        ]  # fmt: skip
        before = [await store.get(*place) for place in places]
        ann = await harness.signed_in("ann")
        csrf = {"x-csrf-token": await ann.csrf()}
        await _block_the_trail(harness)
        done = await asyncio.gather(
            *(ann.ask("POST", f"/api/v1/{path}", json=body, headers=csrf) for path, body in asked)
        )
        assert [status for status, _, _ in done] == [409] * len(asked)
        assert [await store.get(*place) for place in places] == before


async def _people(harness: ConsoleHarness) -> list[Any]:
    """Everything there is of people."""
    store, found = harness.runtime.store.privileged(), list[Any]()
    for kind in (User, Session, SignInLink):
        found += [one async for one in store.scan(Query(kind))]
    return found


async def test_people_and_sessions_are_not_changed_where_that_cant_be_put_on_record(tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        ann = await harness.signed_in("ann")
        await harness.person("ben")
        await harness.person("cy", tenant_id="acme")
        code = await SignInLinks(harness.runtime.store).create("ben")
        csrf = {"x-csrf-token": await ann.csrf()}
        asked: list[tuple[str, dict[str, Any]]] = [
            ("/api/v1/users", {"name": "dan", "role": "viewer", "tenantId": "acme"}),
            ("/api/v1/users/cy/link", {}), ("/api/v1/users/cy/disable", {}), ("/api/v1/users/cy/enable", {}),
            ("/sign-out", {}), ("/sign-out", {"everywhere": True}),
            ("/sign-in/password", {"current": PASSWORD, "password": "another horse battery"}),
        ]  # fmt: skip
        typed = [
            ("/sign-in", {"name": "ben", "password": PASSWORD}),
            ("/sign-in/link", {"code": code, "password": PASSWORD, "again": PASSWORD}),
        ]
        before = await _people(harness)
        await _block_the_trail(harness)
        done = await asyncio.gather(
            *(ann.ask("POST", path, json=body, headers=csrf) for path, body in asked),
            *(harness.visitor().ask("POST", path, data=form) for path, form in typed),
        )
        assert [status for status, _, _ in done] == [409] * len(done)
        assert await _people(harness) == before


async def test_dead_letters_stay_dead_where_their_replay_cant_be_put_on_record(tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        ann = await harness.signed_in("ann")
        store = harness.runtime.store.tenant("-")
        await _die(harness, Endpoint(id="rms", url="https://rms.example", created_at=AT), "e1")
        csrf = {"x-csrf-token": await ann.csrf()}
        before = await store.get(Delivery, "e1~rms"), await store.get(DeadLetter, "e1~rms")
        await _block_the_trail(harness)
        status, _, _ = await ann.ask(
            "POST", "/api/v1/dead-letters/holdfast/replay", json={"dryRun": False}, headers=csrf
        )
        assert status == 409
        assert (await store.get(Delivery, "e1~rms"), await store.get(DeadLetter, "e1~rms")) == before


async def _die(harness: ConsoleHarness, endpoint: Endpoint, *events: str) -> None:
    store = harness.runtime.store.tenant("-")
    await store.commit(put(endpoint))
    for event in events:
        given_up = Delivery(
            id=f"{event}~{endpoint.id}", event_id=event, endpoint_id=endpoint.id, event_type="paid",
            body=b"{}", occurred_at=AT, created_at=AT,
        )  # fmt: skip
        await store.commit(create(given_up))
        for status in ("sending", "dead"):
            await store.commit(patch(Delivery, given_up.id, changes={"status": status}))
        await store.commit(
            create(
                DeadLetter(
                    id=given_up.id, event_id=event, endpoint_id=endpoint.id, event_type="paid", reason="500",
                    died_at=AT,
                )
            )
        )  # fmt: skip


async def test_each_commit_of_a_replay_says_on_record_how_many_it_puts_out(tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        ann = await harness.signed_in("ann")
        await _die(harness, Endpoint(id="rms", url="https://rms.example", created_at=AT), "e1", "e2", "e3")
        await _die(
            harness, Endpoint(id="kept", url="https://k.example", created_at=AT, fifo=True), "e1", "e2"
        )
        status, text, _ = await ann.act("/api/v1/dead-letters/holdfast/replay", {"dryRun": False})
        assert (status, '"changed":5' in text) == (200, True), text
        store = harness.runtime.store.tenant("-")
        replays = Query(AuditEvent).where("action", "==", "dead_letters.replayed").order_by("-sequence")
        page = await store.query(replays)
        # Of an ordered endpoint each commit takes one: only one delivery may be due there.
        assert sorted(event.details["changed"] for event in page.docs) == [1, 4]
        due = [await store.get(Delivery, f"{event}~kept") for event in ("e1", "e2")]
        assert [one is not None and one.doc.status for one in due] == ["pending", "pending"]
        assert sum(one is not None and one.doc.next_attempt_at is not None for one in due) == 1
