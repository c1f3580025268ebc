"""Nobody can see whether Firestore has the indexes and rules: commands and doctor say which, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.doctor.examined import examine
from tests.cli.terminal import typed


def _schema(folder: Path, command: str, url: str, *options: str) -> Any:
    done = typed(folder, "schema", command, "--store", url, *options, HOLDFAST_HOME=str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in options else done.stdout


def _deployment(home: Path, url: str) -> dict[str, Any]:
    told = examine(home, HOLDFAST_STORE=url, HOLDFAST_HOME=str(home))
    found: dict[str, Any] = next(one for one in told["findings"] if one["name"] == "deployed schema")
    return found


def test_what_can_not_be_confirmed_as_deployed_is_named_with_the_commands_until_it_is(
    tmp_path: Path, firestore_url: str
) -> None:
    migrated = _schema(tmp_path, "migrate", firestore_url)
    assert "not confirmed as deployed" in migrated
    assert "firebase deploy" in migrated
    undeployed = _schema(tmp_path, "diff", firestore_url, "--json")["undeployed"]
    assert any(line.startswith("index ") for line in undeployed)
    assert any(line.startswith("rules of ") for line in undeployed)
    before = _deployment(tmp_path, firestore_url)
    assert not before["fine"]
    assert before["remedy"]

    assert _schema(tmp_path, "confirm", firestore_url, "--json")["changes"] == undeployed
    assert "undeployed" not in _schema(tmp_path, "diff", firestore_url, "--json")
    assert "not confirmed" not in _schema(tmp_path, "migrate", firestore_url)
    assert _deployment(tmp_path, firestore_url)["fine"]
