"""A record of everything that a store's engine commits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.kit.audit import AuditFields, AuditHeadFields
from holdfast.kit.cache import CacheFields
from holdfast.kit.leases.models import LeaseDocument
from holdfast.kit.processes import PROCESS_DOCUMENTS
from holdfast.kit.rate_limit import RateWindow
from holdfast.model import Document
from holdfast.store import Store
from holdfast.store.commit import Commit, Committed, Outcome, Write

# The kit's own bookkeeping: no act of anybody, and never on record.
BOOKKEEPING: tuple[type[Document], ...] = (
    AuditHeadFields, CacheFields, LeaseDocument, RateWindow, *PROCESS_DOCUMENTS,
)  # fmt: skip


class LoggedCommit(msgspec.Struct, frozen=True):
    """The classes a commit changed, without audit trail and bookkeeping, and the audit events in it."""

    changed: frozenset[str]
    events: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return f"{sorted(self.changed)} with {[event['action'] for event in self.events]}"


class CommitLog:
    """Stands between a store and its engine, and keeps what was committed since `clear`."""

    def __init__(self, store: Store) -> None:
        self.commits: list[LoggedCommit] = []
        self._commit = store.engine.commit
        store.engine.commit = self._logged  # type: ignore[method-assign]

    def clear(self) -> None:
        self.commits.clear()

    async def _logged(self, commits: Sequence[Commit]) -> list[Outcome]:
        outcomes = await self._commit(commits)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self.commits.append(_read(commit))
        return outcomes


def _read(commit: Commit) -> LoggedCommit:
    writes = [write for write in commit.writes if write.kind != "check"]
    events = [_event(w) for w in writes if issubclass(w.schema.cls, AuditFields) and w.prepared]
    own: tuple[type[Document], ...] = (AuditFields, *BOOKKEEPING)
    names = [write.schema.cls for write in writes if not issubclass(write.schema.cls, own)]
    changed = frozenset(cls.__name__ for cls in names)
    return LoggedCommit(changed, tuple(events))


def _event(write: Write) -> dict[str, Any]:
    """An audit event by the names of its fields, whatever names its class stores them under."""
    assert write.prepared is not None
    stored = json.loads(write.prepared.body)
    names = {field.encode_name: field.name for field in msgspec.structs.fields(write.schema.cls)}
    return {names.get(name, name): value for name, value in stored.items()}
