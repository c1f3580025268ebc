"""`holdfast gwi …`: runs, usage and the audit trail, with exit codes and JSON for programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.clock import SystemClock
from holdfast.kit.audit import AuditCheckpoint
from holdfast.kit.audit.checkpoints import FILE, CheckpointFile
from holdfast.services.gwi.models.records import UsageMonthly
from holdfast.store import put
from tests.services.gwi.run_harness import REPO, TENANT, run_harness


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place of its own for commands; they set the log up, and it is put back."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    yield tmp_path
    structlog.configure(**before)


def gwi(*words: str, code: int = 0) -> Any:
    told = CliRunner().invoke(app, ["gwi", *words, "--tenant", TENANT, *([] if code else ["--json"])])
    assert told.exit_code == code, (words, told.output, told.exception)
    return f"{told.output}{told.stderr}{told.exception}" if code else json.loads(told.stdout)


async def _found(home: Path, *, drift: bool = False) -> None:
    async with run_harness(f"sqlite:///{home / 'holdfast.db'}", SystemClock(), home) as harness:
        if not drift:
            await harness.found()
            return
        row = UsageMonthly(
            tenant_id=TENANT, month=harness.gwi.usage.current_month, runs=3, updated_at=harness.clock.now()
        )
        await harness.store.commit(put(row))


def test_a_run_is_started_shown_and_cancelled_and_the_trail_verified(home: Path) -> None:
    asyncio.run(_found(home))
    run = gwi("runs", "start", "triage", REPO, "--number", "7")
    assert [one["id"] for one in gwi("runs", "list", "--status", "pending")["items"]] == [run["id"]]
    assert [one["agent"] for one in gwi("runs", "show", run["id"])["steps"]] == ["triage", "publisher"]
    assert "waits for no approval" in gwi("runs", "approve", run["id"], code=1)
    assert gwi("runs", "cancel", run["id"])["status"] == "cancelled"
    assert gwi("usage", "show")["runs"]["used"] == 1
    assert gwi("usage", "rebuild")["drifts"] == []
    events = gwi("audit", "list", "--action", "run_started")["items"]
    assert [one["subject"] for one in events] == [run["id"]]
    assert gwi("audit", "verify")["fault"] is None
    exported = CliRunner().invoke(app, ["gwi", "audit", "export", "--tenant", TENANT]).stdout
    assert len(exported.splitlines()) == gwi("audit", "verify")["events"]


def test_a_trail_that_ends_before_its_checkpoint_is_not_sound(home: Path) -> None:
    asyncio.run(_found(home))
    gwi("runs", "start", "triage", REPO)
    assert gwi("audit", "verify") == {"sound": True, "events": 1, "fault": None}
    later = AuditCheckpoint(
        trail="gwi", tenant_id=TENANT, sequence=2, hash="x" * 64, at=SystemClock().now()
    )  # fmt: skip
    CheckpointFile(home / FILE).write([later])
    assert "events 2 to 2 existed" in gwi("audit", "verify", code=1)


def test_sums_that_differ_from_the_ledger_are_told_and_set_right(home: Path) -> None:
    asyncio.run(_found(home))
    asyncio.run(_found(home, drift=True))
    assert "1 sum differs" in gwi("usage", "rebuild", code=1)
    assert gwi("usage", "rebuild", "--mend")["mended"]
    assert gwi("usage", "rebuild")["drifts"] == []
