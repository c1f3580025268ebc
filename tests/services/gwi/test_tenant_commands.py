"""`holdfast gwi tenants|members|repos|policy`, with exit codes and JSON for programs."""

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

HERE = ("--tenant", TENANT)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place of its own for commands; they set the log up, and it is put back."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def run(*words: str, code: int = 0) -> Any:
    """What `holdfast gwi …` prints."""
    told = CliRunner().invoke(app, ["gwi", *words, "--json"])
    assert told.exit_code == code, (words, told.output, told.exception)
    return json.loads(told.stdout) if not code else f"{told.output}{told.stderr}{told.exception}"


def test_a_tenant_is_administered_at_the_terminal(tmp_path: Path) -> None:
    async def found() -> None:
        async with gwi_harness(f"sqlite:///{tmp_path / 'holdfast.db'}", SystemClock(), tmp_path):
            pass

    asyncio.run(found())
    assert [one["id"] for one in run("tenants", "list")["items"]] == [TENANT]
    assert run("tenants", "pause", *HERE, "--reason", "release")["pausedReason"] == "release"
    assert run("tenants", "resume", *HERE)["pausedAt"] is None
    assert run("tenants", "plan", *HERE, "team")["planLimits"]["runsPerMonth"] == 200
    assert len(run("members", "invite", *HERE, "ann@people.example")["token"]) > 40
    assert "email" in run("members", "invite", *HERE, "nobody", code=2)
    assert run("members", "role", *HERE, "vera", "admin")["role"] == "admin"
    run("members", "remove", *HERE, "olga", code=1)
    assert run("members", "remove", *HERE, "vera")["userId"] == "vera"
    assert "vera" not in str(run("members", "list", *HERE))
    assert run("repos", "connect", *HERE, "acme/api", "43")["id"] == "gh-repo-43"
    assert run("repos", "disconnect", *HERE, "gh-repo-43")["enabled"] is False
    assert len(run("repos", "list", *HERE)["items"]) == 2
    _policy(tmp_path)
    assert run("tenants", "suspend", *HERE)["status"] == "suspended"
    assert run("tenants", "deactivate", *HERE)["status"] == "deactivated"
    assert run("tenants", "activate", *HERE)["status"] == "active"
    run("tenants", "delete", *HERE, "--confirm", "another", code=1)
    assert run("tenants", "delete", *HERE, "--confirm", "org7")["status"] == "deactivated"


def _policy(folder: Path) -> None:
    good, bad, broken = (folder / f"{name}.json" for name in ("good", "bad", "broken"))
    good.write_text('{"rules": []}')
    bad.write_text('{"rules": [{"name": "x"}]}')
    broken.write_text("[")
    assert run("policy", "validate", str(good)) == {"valid": True, "errors": []}
    assert "effect" in run("policy", "validate", str(bad), code=1)
    assert "no JSON object" in run("policy", "validate", str(broken), code=2)
    assert run("policy", "save", *HERE, str(good))["version"] == 1
    assert run("policy", "show", *HERE)["document"] == {"rules": []}
