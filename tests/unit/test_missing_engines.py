"""A run without an engine says so loudly, and fails where green must mean every engine ran."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_NEEDS_FIRESTORE = (
    "tests/unit/test_testing_servers.py::test_a_firestore_url_names_a_project_of_a_running_emulator"
)
_LOUD = "ENGINE FIRESTORE DID NOT RUN: no Firestore emulator: it needs java on the PATH"


def _pytest(empty: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", _NEEDS_FIRESTORE, *arguments],
        cwd=_ROOT,
        # The other engine is not the subject, so none is started for it.
        env=kept | {"PATH": str(empty), "CI": "", "HOLDFAST_TEST_POSTGRES": "postgresql://unasked"} | environ,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("workers", ["0", "1"])
def test_on_a_persons_machine_tests_of_a_missing_engine_are_skipped_loudly(
    tmp_path: Path, workers: str
) -> None:
    done = _pytest(tmp_path, "-n", workers)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout
    assert done.stdout.splitlines().count(_LOUD) == 1
    assert "engine firestore" not in done.stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_under_ci_tests_of_a_missing_engine_fail(tmp_path: Path, workers: str) -> None:
    done = _pytest(tmp_path, "-n", workers, CI="true")
    assert done.returncode == 1, done.stdout
    assert "1 error" in done.stdout
    assert _LOUD in done.stdout
