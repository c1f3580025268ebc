"""A running whole: the store, the kit, the services that are there, and the loops that move them.

config ──► Runtime.open ──► store + vault + inbox + outbox + schedules
                              │
                services found by their folder: build(Context) ──► Parts
                              │
        http, cli, console over it; Supervisor keeps the loops

`finding` finds the services, `kept` says which documents there are, `settings` reads what services and the
vault are given, `whole` puts them together, `vitals` tells how it all does.
"""

from holdfast.runtime.discovery import find_services
from holdfast.runtime.document_registry import KIT_DOCUMENTS, KIT_SEALED, documents_of, sealed_of
from holdfast.runtime.health import BACKLOG_S_MAX, DEPTH_MAX
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.settings import KEYS_FILE, keys_in, settings_of, vault_of

__all__ = [
    "BACKLOG_S_MAX",
    "DEPTH_MAX",
    "KEYS_FILE",
    "KIT_DOCUMENTS",
    "KIT_SEALED",
    "Runtime",
    "documents_of",
    "find_services",
    "keys_in",
    "sealed_of",
    "settings_of",
    "vault_of",
]
