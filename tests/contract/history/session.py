"""One engine in a history: its handles, and the versions it has returned so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.store import Committed, Query, QueryPage, Snapshot, Store
from holdfast.store.contract.harness import exact

Ref = tuple[type, str]
TENANTS = ("t", "u")


@dataclass
class Session:
    """What an operation runs against. Versions are an engine's own, so each side remembers its own."""

    store: Store
    history: str
    peek: Callable[[type, str], list[Any]]
    latest: dict[Ref, int] = field(default_factory=dict)
    seen: dict[Ref, list[int]] = field(default_factory=dict)
    cursors: list[tuple[str, Query[Any], str]] = field(default_factory=list)
    fences: dict[Ref, int] = field(default_factory=dict)
    shown_count: int = 0

    def handle(self, who: str) -> Store:
        if who == "privileged":
            return self.store.privileged()
        return self.store.tenant(self.tenant(who))

    def tenant(self, who: str) -> str:
        return f"{self.history}-{who}"

    def wrote(self, ref: Ref, version: int) -> str:
        """How a write's version relates to all before it; 0 means that nothing was written or kept."""
        if version == 0:
            self.latest.pop(ref, None)
            return "none"
        before = self.seen.setdefault(ref, [])
        relation = "again" if version in before else "new"
        before.append(version)
        self.latest[ref] = version
        return relation

    def shown(self, snapshot: Snapshot[Any] | None) -> Any:
        """Return a document as a result, its version only as `the last one written` or not."""
        if snapshot is None:
            return None
        self.shown_count += 1
        ref = (type(snapshot.doc), snapshot.key)
        known = "latest" if self.latest.get(ref) == snapshot.version else "other"
        return exact(snapshot.doc), snapshot.key, known

    def page(self, who: str, query: Query[Any], page: QueryPage[Any]) -> Any:
        if page.cursor is not None:
            self.cursors.append((who, query, page.cursor))
        return [self.shown(item) for item in page.items], page.cursor is None


class Refusal(NamedTuple):
    """An error as a result; its message may differ."""

    name: str
    code: str
    path: str | None


def refusal(fault: HoldfastError) -> Refusal:
    return Refusal(type(fault).__name__, fault.code, fault.path)


def outcome(session: Session, refs: list[Ref], kinds: list[str], result: Committed | HoldfastError) -> Any:
    """Return a commit's result in a form that is the same on every engine."""
    if isinstance(result, HoldfastError):
        return refusal(result)
    told = []
    for ref, kind, version in zip(refs, kinds, result.versions, strict=True):
        told.append("checked" if kind == "check" and version == 0 else session.wrote(ref, version))
    return told


def number(value: float | None) -> str:
    """Sums are exact while they fit 64 bits; beyond that, and for fractions, twelve digits are compared."""
    if value is None:
        return "None"
    if abs(value) >= 2**63:
        return f"{float(value):.12g}"
    return f"{type(value).__name__} {value!r}" if isinstance(value, int) else f"float {value:.12g}"
