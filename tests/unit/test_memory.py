"""A test run in memory leaves nothing there, even when it is killed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import memory


def test_what_a_killed_run_left_goes_and_what_a_living_one_writes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    for name in (f"holdfast-tests-{ended.pid}", f"holdfast-tests-{os.getpid()}", "somebody-else"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    monkeypatch.setattr(memory, "_MEMORY", tmp_path)
    memory.remove_what_killed_runs_left()
    assert {path.name for path in tmp_path.iterdir()} == {f"holdfast-tests-{os.getpid()}", "somebody-else"}


def test_a_place_that_is_not_there_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "none")
    assert not memory.is_fit()
