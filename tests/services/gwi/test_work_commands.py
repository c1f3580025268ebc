"""`holdfast gwi signals|queue|candidates`, with exit codes and JSON for programs."""

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
from tests.services.gwi.harness import TENANT, gwi_harness


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place of its own for commands; they set the log up, and it is put back."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def run(*words: str, code: int = 0) -> Any:
    """The JSON that `holdfast gwi …` prints; its text where it must fail."""
    as_json = [] if code else ["--json"]
    told = CliRunner().invoke(app, ["gwi", *words, "--tenant", TENANT, *as_json])
    assert told.exit_code == code, (words, told.output, told.exception)
    return f"{told.output}{told.stderr}{told.exception}" if code else json.loads(told.stdout)


async def _found(url: str, home: Path) -> None:
    async with gwi_harness(url, SystemClock(), home):
        pass


def test_a_day_at_the_terminal(tmp_path: Path) -> None:
    asyncio.run(_found(f"sqlite:///{tmp_path / 'holdfast.db'}", tmp_path))
    repo = ("--repo", "acme/shop", "--repo-id", "42", "--kind", "issue", "--number", "1")
    run("signals", "record", "m1", "--title", "Raise the price", *repo, "--label", "urgent")
    assert "before" in run("signals", "record", "m1", "--title", "Again", code=1)
    assert run("signals", "process")["processed"] == 1
    (item,) = run("queue", "list", "--min-score", "90")["items"]
    assert (item["score"], item["title"]) == (100, "Raise the price")
    assert run("queue", "list", "--status", "dismissed")["items"] == []
    assert "because" in run("queue", "show", item["id"])["scoreBreakdown"]["explanation"]
    (changed,) = run("queue", "change", item["id"], "--assign", "dean")["items"]
    assert changed["assignedTo"] == "dean"
    assert "say what to change" in run("queue", "change", item["id"], code=1)
    (tmp_path / "price.py").write_text("PRICE = 9\n")
    patch = ("--file", "src/price.py=price.py", "-m", "Raise the price")
    made = run("candidates", "propose", item["id"], *patch)
    assert (made["status"], made["approvals"]) == ("ready", "0 of 1")
    assert "can't be read" in run("candidates", "revise", made["id"], "--file", "a=none", "-m", "x", code=2)
    assert "no developer" in run("candidates", "vote", made["id"], "approved", "--as", "vera", code=1)
    assert run("candidates", "vote", made["id"], "approved", "--as", "dean")["status"] == "approved"
    assert run("candidates", "revoke", made["id"], "--as", "dean")["status"] == "ready"
    assert run("candidates", "vote", made["id"], "approved", "--as", "dean")["status"] == "approved"
    applied = run("candidates", "apply", made["id"])
    assert applied["status"] == "applying"
    assert [one["runId"] for one in run("candidates", "list")["items"]] == [applied["runId"]]
    assert run("candidates", "show", made["id"])["patchset"]["branchName"] == f"gwi/{made['id']}"
    assert run("queue", "stats")["byStatus"]["approved"] == 1
    assert run("queue", "dismiss", item["id"], "--reason", "no")["status"] == "dismissed"
    assert [one["status"] for one in run("signals", "list")["items"]] == ["processed"]
    assert "only a failed one" in run("signals", "retry", run("signals", "list")["items"][0]["id"], code=1)
