"""The keys of a home that nobody gave any: made once, whole, whoever comes first."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from holdfast.config import Config, load_config
from holdfast.errors import ConfigError
from holdfast.kit.vault.keys import DerivedKey, legacy_cipher
from holdfast.runtime import KEYS_FILE, vault_of

_ON_A_FULL_DISK = """
import resource, sys
from holdfast.config import load_config
from holdfast.errors import ConfigError
from holdfast.runtime import vault_of
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    vault_of(load_config({"home": sys.argv[1]}, environ={}))
except ConfigError as fault:
    print(fault.message)
"""


def _config(home: Path) -> Config:
    return load_config({"home": home}, environ={})


def test_processes_that_start_at_once_have_the_same_keys(tmp_path: Path) -> None:
    def first(home: Path, gate: Barrier) -> bytes:
        gate.wait()
        return vault_of(_config(home)).secrets(DerivedKey(purpose="a test", signs="nothing"))["first"]

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(25):
            gate, home = Barrier(8), tmp_path / str(round_)
            assert len(set(pool.map(first, [home] * 8, [gate] * 8))) == 1
            assert [file.name for file in home.iterdir()] == [KEYS_FILE]


def test_a_full_disk_leaves_no_half_a_file_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "can't write keys" in done.stdout
    assert list(tmp_path.iterdir()) == []
    vault_of(_config(tmp_path))
    assert stat.S_IMODE((tmp_path / KEYS_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_file_that_holds_no_keys_is_told_by_its_name_and_never_replaced(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / KEYS_FILE
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{file} .* restore it from a backup"):
        vault_of(_config(tmp_path))
    assert file.read_bytes() == content


def test_the_legacy_key_of_the_settings_opens_values_of_the_former_system(tmp_path: Path) -> None:
    key = "the former system's key"
    iv = os.urandom(12)
    sealed = base64.b64encode(iv + legacy_cipher(key).encrypt(iv, b"1//0gToken", None)).decode()
    config = load_config({"home": tmp_path}, environ={"HOLDFAST_LEGACY_KEY": key})
    assert vault_of(config).open(sealed, "accounts", "1", "token").reveal() == "1//0gToken"
    assert key not in f"{config!r} {config.redacted()}"
