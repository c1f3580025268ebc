"""The URL of a Firestore database: `firestore://project[?database=NAME][&emulator=host:port]`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import msgspec

from holdfast.errors import ConfigError

EMULATOR = "FIRESTORE_EMULATOR_HOST"


class FirestoreAddress(msgspec.Struct, frozen=True):
    project: str
    database: str = "(default)"
    emulator: str | None = None

    @property
    def name(self) -> str:
        return f"projects/{self.project}/databases/{self.database}"

    @property
    def root(self) -> str:
        """Return the prefix of every document's full name."""
        return f"{self.name}/documents"


def parse_address(url: str, environ: Mapping[str, str] = os.environ) -> FirestoreAddress:
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "firestore" or not parts.netloc or parts.path not in ("", "/"):
        raise ConfigError(f"{url!r}: write firestore://project[?database=NAME][&emulator=host:port]")
    unknown = sorted(options.keys() - {"database", "emulator"})
    if unknown:
        raise ConfigError(f"{url!r}: unknown parameter {unknown[0]!r}; use database and emulator")
    emulator = options.get("emulator") or environ.get(EMULATOR) or None
    return FirestoreAddress(parts.netloc, options.get("database") or "(default)", emulator)
