"""What a service and the vault are given: from the settings, the environment, the home."""

from __future__ import annotations

import os
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
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(new_key("first"))
        return path.read_text()
    except OSError as fault:
        raise ConfigError(f"can't keep keys in {path}: {fault.strerror}; set HOLDFAST_KEYS", "keys") from None
