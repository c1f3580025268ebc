"""An installation without faults, for a test to plant one in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.doctor.examined import keep, nothing


@pytest.fixture(scope="session")
def _sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    keep(folder, nothing)
    return folder


@pytest.fixture
def home(tmp_path: Path, _sound: Path) -> Path:
    """A folder whose store is as it should be."""
    shutil.copytree(_sound / ".holdfast", tmp_path / ".holdfast")
    return tmp_path
