"""Living processes and their releases: overlap while a store's schema only grows, refusal where it can't."""

from holdfast.kit.processes.decision import describe, is_newer, newer_collections
from holdfast.kit.processes.models import Process, Release, SchemaState
from holdfast.kit.processes.registry import (
    BEAT_S,
    LIVE_S,
    PROCESS_DOCUMENTS,
    ProcessRegistry,
    living_processes,
    store_state,
)

__all__ = [
    "BEAT_S",
    "LIVE_S",
    "PROCESS_DOCUMENTS",
    "Process",
    "ProcessRegistry",
    "Release",
    "SchemaState",
    "describe",
    "is_newer",
    "living_processes",
    "newer_collections",
    "store_state",
]
