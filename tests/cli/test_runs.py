"""`holdfast runs` as an operator types it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import load_config
from holdfast.kit.runs import RunDocument, Runs, Step, Workflow
from holdfast.runtime import Runtime
from holdfast.store import patch
from tests.cli.terminal import Typed, typed

_TENANT = ("--tenant", "acme")


async def _started(home: Path) -> list[str]:
    """Three runs that nobody works on; their ids, oldest first."""
    workflow = Workflow("chair")

    @workflow.step()
    async def saw(step: Step) -> None: ...

    runtime = await Runtime.open(load_config({"home": home}, environ={}), services=[])
    runs = Runs(runtime.store.tenant("acme"))
    made = [(await runs.start(workflow, input={"n": n})).id for n in range(3)]
    await runtime.close()
    return made


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    return asyncio.run(_started(tmp_path))


def _runs(home: Path, *words: str) -> Typed:
    return typed(home, "runs", *words, *_TENANT, HOLDFAST_HOME=str(home))


def _json(home: Path, *words: str) -> Any:
    told = _runs(home, *words, "--json")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_runs_are_listed_by_pages_looked_at_woken_and_cancelled(tmp_path: Path, ids: list[str]) -> None:
    first = _json(tmp_path, "list", "--limit", "2")
    rest = _json(tmp_path, "list", "--limit", "2", "--cursor", first["cursor"])
    assert [row["id"] for row in first["items"] + rest["items"]] == ids[::-1]
    assert _json(tmp_path, "wake", ids[0])["status"] == "pending"
    assert _json(tmp_path, "cancel", ids[0], "--reason", "wrong wood")["status"] == "cancelled"
    assert _runs(tmp_path, "cancel", ids[1]).stdout == f"{ids[1]}: cancelled\n"
    shown = _runs(tmp_path, "show", ids[0]).stdout
    assert "status: cancelled" in shown
    assert "error: wrong wood" in shown
    assert "saw" in shown
    listed = _json(tmp_path, "list", "--status", "cancelled", "--type", "chair")["items"]
    assert [row["id"] for row in listed] == [ids[1], ids[0]]
    trail = typed(tmp_path, "audit", "export", *_TENANT, HOLDFAST_HOME=str(tmp_path)).stdout
    actions = [json.loads(line)["action"] for line in trail.splitlines()]
    assert actions == ["run.woken", "run.cancelled", "run.cancelled"]


async def _failed(home: Path, id: str) -> None:
    runtime = await Runtime.open(load_config({"home": home}, environ={}), services=[])
    acme, now = runtime.store.tenant("acme"), runtime.clock.now()
    await acme.commit(patch(RunDocument, id, changes={"status": "running"}))
    over = {"status": "failed", "error": "the wood broke", "completed_at": now, "due_at": None}
    await acme.commit(patch(RunDocument, id, changes=over))
    await runtime.close()


def test_a_run_that_failed_is_retried_and_no_other(tmp_path: Path, ids: list[str]) -> None:
    asyncio.run(_failed(tmp_path, ids[0]))
    again = _runs(tmp_path, "retry", ids[0])
    assert (again.returncode, again.stdout) == (
        0,
        f"{ids[0]} goes on as soon as a worker sees it\n",
    )
    shown = _json(tmp_path, "show", ids[0])
    assert (shown["status"], shown["error"]) == ("pending", None)
    refused = _runs(tmp_path, "retry", ids[0])
    assert (refused.returncode, "is pending; only a failed run" in refused.stderr) == (1, True)
    trail = typed(tmp_path, "audit", "export", *_TENANT, HOLDFAST_HOME=str(tmp_path)).stdout
    entry, failed = [json.loads(line) for line in trail.splitlines()]
    assert (entry["action"], entry["details"]) == ("run.retried", {"error": "the wood broke"})
    assert (failed["action"], failed["outcome"], failed["subject"]) == ("run.retried", "failed", ids[0])


def test_what_cant_be_done_is_one_line_and_exit_1(tmp_path: Path, ids: list[str]) -> None:
    _runs(tmp_path, "cancel", ids[0])
    again = _runs(tmp_path, "cancel", ids[0])
    assert (again.returncode, "has ended" in again.stderr) == (1, True)
    assert _runs(tmp_path, "show", "none").stderr == "holdfast: no run 'none' in holdfast_runs\n"
    other = typed(tmp_path, "runs", "show", ids[1], "--tenant", "hoge", HOLDFAST_HOME=str(tmp_path))
    assert other.returncode == 1
    assert "they are in holdfast_runs" in _runs(tmp_path, "list", "--collection", "none").stderr


@pytest.mark.parametrize(
    "words", [("list", "--status", "lost"), ("cancel", "x", "--reason", "")], ids=" ".join
)
def test_a_wrong_value_is_wrong_usage(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert _runs(tmp_path, *words).returncode == 2
