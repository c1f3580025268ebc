"""`holdfast documents` as an operator types it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import load_config
from holdfast.kit.outbox import Endpoint
from holdfast.kit.runs import Runs, Step, Workflow
from holdfast.runtime import Runtime
from holdfast.store import create
from tests.cli.terminal import Typed, typed


async def _filled(home: Path) -> str:
    """Three endpoints with something to hide, and a run with a step; gives the run's id."""
    workflow = Workflow("chair")

    @workflow.step()
    async def saw(step: Step) -> None: ...

    runtime = await Runtime.open(load_config({"home": home}, environ={}), services=[])
    acme = runtime.store.tenant("acme")
    for number in range(3):
        at = datetime(2026, 11, 15, number, tzinfo=UTC)
        url = f"https://me:hunter2@rms.example/{number}"
        await acme.commit(create(Endpoint(id=f"e{number}", tenant_id="acme", url=url, created_at=at)))
    run = await Runs(acme).start(workflow)
    await runtime.close()
    return run.id


@pytest.fixture
def run_id(tmp_path: Path) -> str:
    return asyncio.run(_filled(tmp_path))


def _documents(home: Path, *words: str) -> Typed:
    return typed(home, "documents", *words, "--tenant", "acme", HOLDFAST_HOME=str(home))


def _json(home: Path, *words: str) -> Any:
    told = _documents(home, *words, "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_documents_are_looked_through_by_pages_and_opened(tmp_path: Path, run_id: str) -> None:
    named = {row["name"]: row["by"] for row in _json(tmp_path, "collections")["items"]}
    assert named["holdfast_endpoints"] == "status_createdAt_desc createdAt_desc"
    way = ("list", "holdfast_endpoints", "--by", "createdAt_desc", "--limit", "2")
    first = _json(tmp_path, *way)
    rest = _json(tmp_path, *way, "--cursor", first["cursor"])
    assert [row["_id"] for row in first["items"] + rest["items"]] == ["e2", "e1", "e0"]
    active = _json(tmp_path, "list", "holdfast_endpoints", "--is", "status=active")["items"]
    assert len(active) == 3
    assert "hunter2" not in _documents(tmp_path, "show", "holdfast_endpoints", "e1").stdout
    assert _json(tmp_path, "show", "holdfast_endpoints", "e1")["url"] == "https://me:••••••@rms.example/1"
    steps = "holdfast_runs__holdfast_run_steps"
    (step,) = _json(tmp_path, "list", steps, "--under", f"run_id={run_id}")["items"]
    assert _json(tmp_path, "show", steps, *step["_id"].split("/"))["name"] == "saw"


def test_what_cant_be_asked_is_told(tmp_path: Path, run_id: str) -> None:
    for code, said, *words in (
        (1, "the indexes are", "list", "holdfast_endpoints", "--by", "url"),
        (1, "this index has", "list", "holdfast_endpoints", "--is", "url=x"),
        (1, "give run_id", "list", "holdfast_runs__holdfast_run_steps"),
        (1, "no index lists", "list", "holdfast_leases"),
        (1, "there is no collection", "list", "none"),
        (1, "there is no 'none'", "show", "holdfast_endpoints", "none"),
        (2, "NAME=VALUE", "list", "holdfast_endpoints", "--is", "status"),
        (2, "NAME=VALUE", "list", "holdfast_endpoints", "--is", "status=a", "--is", "status=b"),
        (2, "id", "show", "holdfast_endpoints", "a", "b"),
    ):
        told = _documents(tmp_path, *words)
        assert (told.returncode, said in told.stderr) == (code, True), (words, told)
