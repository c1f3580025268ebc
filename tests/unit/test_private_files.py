"""What a process keeps is readable by its user alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.app import back_up
from holdfast.config import load_config
from holdfast.private_files import exposed
from holdfast.runtime import Runtime


@pytest.fixture(autouse=True)
def _generous_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


async def test_home_store_log_and_backup_are_their_owners_alone(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "backups" / "today.db"
    runtime = await Runtime.open(load_config({"home": home}, environ={}), services=[])
    try:
        await back_up(runtime.store, copy)
        files = [path for path in (*home.iterdir(), copy) if path.is_file()]
        assert {"holdfast.db", "holdfast.db-wal", "holdfast.db-shm", "keys"} <= {path.name for path in files}
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (home, copy.parent, *files)}
    finally:
        await runtime.close()
    assert modes == {path: 0o700 if path in (home, copy.parent) else 0o600 for path in modes}


def test_a_file_is_exposed_unless_it_or_its_folder_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    file = folder / "store.db"
    file.touch(0o644)
    assert exposed([folder, file, folder / "missing"]) == [folder, file]
    file.chmod(0o600)
    assert exposed([file]) == []
    file.chmod(0o644)
    folder.chmod(0o700)
    assert exposed([folder, file]) == []
