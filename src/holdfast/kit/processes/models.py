"""The documents of living processes, and of the releases whose declarations they work by."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, Index, Retention, document

STATE_ID: Final = "holdfast"


@document(
    "holdfast_processes/{id}",
    tenant="tenant_id",
    indexes=[Index("seen_at"), Index("released", "seen_at")],
    retention=Retention("seen_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class Process(Document, rename="camel"):
    """A process that works on the store; it lives while its heartbeat, by the shared clock, is recent.

    The owners of its claims begin with `name`; `released` says that its claims were made due for others.
    `key_id` is the key of the vault by which it signs and seals.
    """

    id: str
    tenant_id: str = NO_TENANT
    name: str = ""
    released: bool = False
    host: str
    pid: int
    version: str
    release_id: str
    key_id: str = ""
    started_at: datetime
    seen_at: datetime


class Layout(msgspec.Struct, frozen=True):
    """How one release stores a collection: its schema version, its columns and list indexes, its access."""

    version: int
    columns: dict[str, str]
    access: str = ""


@document("holdfast_releases/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class Release(Document, rename="camel"):
    """The declarations of a release, by their digest: the layout of each collection."""

    id: str
    tenant_id: str = NO_TENANT
    version: str
    layouts: dict[str, Layout] = {}


@document("holdfast_schema/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class SchemaState(Document, rename="camel"):
    """The newest version of Holdfast that worked on the store, and the schema version of each collection.

    `writers` are, by collection, the releases that may have written since all its columns were last filled.
    """

    id: str = STATE_ID
    tenant_id: str = NO_TENANT
    version: str = ""
    versions: dict[str, int] = {}
    writers: dict[str, list[str]] = {}
    at: datetime
