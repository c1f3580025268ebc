"""What a service and the vault are given: from the settings, the environment, the home."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.kit.vault import Vault, new_key
from holdfast.service import Service

KEYS_FILE: Final = "keys"


def settings_of(service: Service, config: Config) -> Any:
    """A service's own table of the settings, checked; `ConfigError` names it."""
    table = dict(config.services.get(service.name, {}))
    for field in msgspec.structs.fields(service.settings):
        variable = f"HOLDFAST_{service.name}_{field.name}".upper()
        if os.environ.get(variable):
            table[field.encode_name] = os.environ[variable]
    try:
        return msgspec.convert(table, service.settings, strict=False)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"[services.{service.name}]: {fault}", service.name) from None


def vault_of(config: Config) -> Vault:
    """What seals and opens secrets here: by the keys that are set, else by those kept in the home."""
    return Vault.from_settings(config.keys or _own_keys(config.home))


def _own_keys(home: Path) -> str:
    """The keys of a store that nobody gave any: made once, kept beside it, readable by its owner alone."""
    path = home / KEYS_FILE
    try:
        if not path.exists():
            home.mkdir(parents=True, exist_ok=True)
            _keep_whole(path, new_key("first"))
        return keys_in(path)
    except OSError as fault:
        raise ConfigError(f"can't keep keys in {path}: {fault.strerror}; set HOLDFAST_KEYS", "keys") from None


def keys_in(path: Path) -> str:
    """What a file of keys says; `ConfigError` for one that says nothing. OSError where it can't be read."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text:
        # Never made anew: what the lost keys sealed would then look as if it had been sealed by these.
        raise ConfigError(
            f"{path} holds no keys: put the keys back; where nothing was kept yet, delete it", "keys"
        )
    return text


def _keep_whole(path: Path, text: str) -> None:
    """Put a file there that is whole and on disk, unless somebody was first; only its owner can read it."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link replaces nothing: of those who start at once, one is first.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
