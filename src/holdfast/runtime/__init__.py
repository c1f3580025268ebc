"""The composition root: store, kit, services and loops of one process.

config ──► Runtime.open ──► store + vault + inbox + outbox + schedules
                              │
                services found by their folder: build(Context) ──► Parts
                              │
        http, cli, console over it; Supervisor runs the loops

`discovery` finds the services, `document_registry` lists the documents, `settings` reads the settings of
services and the keys of the vault, `part_registry` names the parts that services bring, `runtime` composes
them, `health` reports on them.
"""

from holdfast.runtime.discovery import find_services, select_services
from holdfast.runtime.document_registry import (
    KIT_DOCUMENTS,
    documents_of,
    has_documents,
    key_register,
    sealed_fields,
)
from holdfast.runtime.health import BACKLOG_S_MAX, DEPTH_MAX
from holdfast.runtime.part_registry import KIT_PART
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import KEYS_FILE, keys_in, settings_of, vault_of

__all__ = [
    "BACKLOG_S_MAX",
    "DEPTH_MAX",
    "KEYS_FILE",
    "KIT_DOCUMENTS",
    "KIT_PART",
    "Runtime",
    "documents_of",
    "find_services",
    "has_documents",
    "key_register",
    "keys_in",
    "sealed_fields",
    "select_services",
    "settings_of",
    "vault_of",
]
