"""Settings of services and keys of the vault: from holdfast.toml, the environment and the home."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.kit.vault import Vault, new_key
from holdfast.private_files import make_folder
from holdfast.service import Service

KEYS_FILE: Final = "keys"


def settings_of(service: Service, config: Config) -> Any:
    """A service's own table of the settings, checked; `ConfigError` names the table."""
    table = dict(config.service_settings.get(service.name, {}))
    for field in msgspec.structs.fields(service.settings):
        variable = f"HOLDFAST_{service.name}_{field.name}".upper()
        if os.environ.get(variable):
            table[field.encode_name] = os.environ[variable]
    try:
        return msgspec.convert(table, service.settings, strict=False)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"[service.{service.name}]: {fault}", service.name) from None


def vault_of(config: Config) -> Vault:
    """The vault, with the configured keys or those in the home."""
    return Vault.from_settings(config.keys or _own_keys(config.home), legacy_key=config.legacy_key or None)


def _own_keys(home: Path) -> str:
    """The key file of a store without configured keys: created once, readable by its owner alone."""
    path = home / KEYS_FILE
    try:
        if not path.exists():
            make_folder(home)
            _create_durably(path, new_key("first"))
        return keys_in(path)
    except OSError as fault:
        raise ConfigError(
            f"can't write keys to {path}: {fault.strerror}; set HOLDFAST_KEYS", "keys"
        ) from None


def keys_in(path: Path) -> str:
    """The content of a key file; `ConfigError` for an empty one, OSError for an unreadable one."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text:
        # Never regenerated: what the lost keys sealed would look as if these keys had sealed it.
        raise ConfigError(
            f"{path} holds no keys: restore it from a backup, or delete it if nothing was stored yet", "keys"
        )
    return text


def remove_key(path: Path, key_id: str) -> None:
    """Rewrite a key file without one of its keys."""
    parts = [part for part in keys_in(path).split(",") if part.strip().partition(":")[0] != key_id]
    _write_durably(path, ",".join(parts), publish=os.replace)


def _create_durably(path: Path, text: str) -> None:
    """Create the file, unless it exists."""
    # Unlike a rename, a link replaces nothing: of processes that start at once, one creates the keys.
    with suppress(FileExistsError):
        _write_durably(path, text, publish=os.link)


def _write_durably(path: Path, text: str, *, publish: Callable[[str, Path], None]) -> None:
    """Write a file readable by its owner alone; it appears under its name at once and whole."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
