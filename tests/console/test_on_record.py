"""What people do and its entry on the audit trail: both are kept, or neither."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.kit.audit import Audit, AuditHead, Entry
from holdfast.kit.connections import Connection
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Delivery, Endpoint
from holdfast.kit.runs import RunDocument
from holdfast.kit.schedules import Schedule
from holdfast.store import create, patch, put
from tests.console.bed import Bed, console
from tests.console.desk import connect, desk
from tests.console.workshop import Workshop, runs_of
from tests.providers.setting import ALICE, a_setting

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


async def _block_the_trail(bed: Bed) -> None:
    """A head that has fallen back: the place of the next event is taken, so none can be written."""
    await Audit(bed.runtime.store, tenant_id="-").append(Entry(action="first", actor="cli:me"))
    await bed.runtime.store.tenant("-").commit(put(AuditHead(tenant_id="-")))


async def test_what_cant_be_put_on_record_is_not_done(tmp_path: Path) -> None:
    workshop = Workshop()
    async with (
        a_setting() as setting,
        console(tmp_path, services=[desk(setting), workshop.service(works=False)]) as bed,
    ):
        store = bed.runtime.store.tenant("-")
        schedule = Schedule(
            tenant_id="-", name="nightly", cron="0 2 * * *", zone="UTC", missed="once", slot_at=AT,
            next_at=AT,
        )  # fmt: skip
        item = InboxItem(tenant_id="-", source="s", mark="m", received_at=AT)
        near = Endpoint(id="rms", url="https://rms.example", created_at=AT)
        dead = Delivery(
            id="e1~rms", event_id="e1", endpoint_id="rms", event_type="paid", body=b"{}", occurred_at=AT,
            created_at=AT,
        )  # fmt: skip
        await store.commit(create(schedule), put(near), create(dead), create(item))
        for status in ("sending", "dead"):
            await store.commit(patch(Delivery, dead.id, changes={"status": status}))
        await store.commit(patch(InboxItem, "s_m", changes={"status": "parked", "finished_at": AT}))
        run, connection = await runs_of(bed.runtime).start(workshop.chair), await connect(bed, setting, ALICE)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("schedules/-_nightly/run", {}), ("schedules/-_nightly/switch", {"on": False}),
            (f"runs/holdfast_runs/{run.id}/cancel", {}), (f"runs/holdfast_runs/{run.id}/wake", {}),
            (f"connections/{connection.id}/revoke", {}), ("inbox/s_m/replay", {}),
            ("deliveries/e1~rms/replay", {}),
        ]  # fmt: skip
        places: list[tuple[Any, str]] = [
            (Schedule, "-_nightly"), (RunDocument, run.id), (Connection, connection.id), (InboxItem, "s_m"),
            (Delivery, "e1~rms"),
        ]  # fmt: skip
        before = [await store.get(*place) for place in places]
        ann = await bed.signed_in("ann")
        csrf = {"x-csrf-token": await ann.csrf()}
        await _block_the_trail(bed)
        done = await asyncio.gather(
            *(ann.ask("POST", f"/api/v1/{path}", json=body, headers=csrf) for path, body in asked)
        )
        assert [status for status, _, _ in done] == [409] * len(asked)
        assert [await store.get(*place) for place in places] == before
