"""What a signal becomes, in its processor's transaction: a new item, a part of a live one, or nothing.

A subject's dedupe entry is read and written with its item, so two processes can't make two items of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.services.gwi.domain.scoring import SCORE_MIN, ScoreBreakdown, score
from holdfast.services.gwi.domain.subjects import Subject, WorkType, classify, dedupe_key
from holdfast.services.gwi.models.work import (
    LIVE,
    DedupeEntry,
    Evidence,
    ProcessingMeta,
    SignalStatus,
    WorkItem,
    WorkSignal,
    dedupe_id,
)
from holdfast.store import Transaction, create, put

SUMMARY_CHARACTERS_MAX: Final = 500
# Older ids are dropped from an item; the signals themselves stay.
SIGNALS_MAX: Final = 200


class SignalResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of a signal."""

    signal_id: str
    status: SignalStatus
    work_item_id: str = ""
    reason: str = ""
    score: int | None = None


def subject_of(signal: WorkSignal) -> Subject:
    """The facts of a signal that are decided on."""
    context, pull = signal.context, _part(signal.payload, "pull_request")
    mergeable = False if pull.get("mergeable_state") == "dirty" else pull.get("mergeable")
    completed = _part(signal.payload, "issue").get("state_reason") == "completed"
    return Subject(
        source=signal.source, resource_type=context.resource_type, number=context.resource_number,
        repo=context.repo.full_name if context.repo else "", title=context.title or "",
        labels=tuple(context.labels or ()), action=context.action or "",
        mergeable=mergeable if isinstance(mergeable, bool) else None,
        done=pull.get("merged") is True or completed,
    )  # fmt: skip


def _part(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = payload.get(name)
    return part if isinstance(part, dict) else {}


class SignalProcessing:
    """The processing of one signal inside one transaction."""

    def __init__(
        self, tx: Transaction, signal: WorkSignal, *, now: datetime, label_points: Mapping[str, int]
    ) -> None:
        self._tx, self._signal, self._now = tx, signal, now
        self._subject = subject_of(signal)
        self._key = dedupe_key(signal.tenant_id, self._subject)
        self._label_points = label_points

    async def process(self) -> SignalResult:
        """Write the signal's new status and what it changes."""
        entry, live = await self._entry(), None
        if entry.document_id:
            stored = await self._tx.get(WorkItem, self._signal.tenant_id, entry.document_id)
            live = stored.doc if stored is not None and stored.doc.status in LIVE else None
        if self._subject.closing:
            return self._close(entry, live)
        if entry.closed_at is not None and self._signal.occurred_at <= entry.closed_at:
            return self._ignore("it occurred before its subject was closed")
        type = classify(self._subject)
        breakdown = score(self._subject, type, label_points=self._label_points)
        if live is not None:
            return self._absorb(live, type, breakdown)
        if breakdown.final_score < SCORE_MIN:
            return self._ignore(f"its score of {breakdown.final_score} is below {SCORE_MIN}", breakdown)
        return self._create(entry, type, breakdown)

    async def _entry(self) -> DedupeEntry:
        id = dedupe_id("item", self._key)
        stored = await self._tx.get(DedupeEntry, self._signal.tenant_id, id)
        if stored is not None:
            return stored.doc
        return DedupeEntry(id=id, tenant_id=self._signal.tenant_id, created_at=self._now)

    def _close(self, entry: DedupeEntry, live: WorkItem | None) -> SignalResult:
        """Remember when the subject was closed, and close its live item."""
        entry.closed_at = max(entry.closed_at or self._signal.occurred_at, self._signal.occurred_at)
        self._tx.write(put(entry))
        if live is None or (live.signal_at is not None and live.signal_at > self._signal.occurred_at):
            return self._ignore(f"its subject was {self._subject.action}")
        live.status = "completed" if self._subject.done else "dismissed"
        live.close_reason = f"{self._subject.action} at its source"
        self._tx.write(put(self._with_signal(live)))
        return self._ignore(f"its subject was {self._subject.action}", item=live)

    def _absorb(self, item: WorkItem, type: WorkType, breakdown: ScoreBreakdown) -> SignalResult:
        """Add the signal to a live item; the newest signal decides type, title and score."""
        newest = item.signal_at is None or self._signal.occurred_at >= item.signal_at
        self._with_signal(item)
        if newest:
            item.type, item.score, item.score_breakdown = type, breakdown.final_score, breakdown
            item.title, item.summary = self._title(), self._summary()
        self._tx.write(put(item))
        return self._settle("processed", item=item)

    def _create(self, entry: DedupeEntry, type: WorkType, breakdown: ScoreBreakdown) -> SignalResult:
        signal, context = self._signal, self._signal.context
        item = WorkItem(
            tenant_id=signal.tenant_id, type=type, title=self._title(), summary=self._summary(),
            dedupe_key=self._key, score=breakdown.final_score, score_breakdown=breakdown,
            signal_ids=[signal.id], signal_at=signal.occurred_at, evidence=Evidence(source_urls=self._urls()),
            repo=context.repo, resource_number=context.resource_number, resource_url=context.resource_url,
            created_at=self._now, updated_at=self._now,
        )  # fmt: skip
        self._tx.write(create(item))
        entry.document_id = item.id
        self._tx.write(put(entry))
        return self._settle("processed", item=item)

    def _with_signal(self, item: WorkItem) -> WorkItem:
        item.signal_ids = [*item.signal_ids, self._signal.id][-SIGNALS_MAX:]
        item.signal_count += 1
        item.signal_at = max(item.signal_at or self._signal.occurred_at, self._signal.occurred_at)
        urls = dict.fromkeys([*item.evidence.source_urls, *self._urls()])
        item.evidence.source_urls = list(urls)[-SIGNALS_MAX:]
        item.updated_at = self._now
        return item

    def _title(self) -> str:
        subject = self._subject
        numbered = f"{subject.repo}#{subject.number}" if subject.number is not None else subject.repo
        return subject.title.strip() or numbered or f"Signal {self._signal.id}"

    def _summary(self) -> str:
        return (self._signal.context.body or "").strip()[:SUMMARY_CHARACTERS_MAX]

    def _urls(self) -> list[str]:
        return [self._signal.context.resource_url] if self._signal.context.resource_url else []

    def _ignore(
        self, reason: str, breakdown: ScoreBreakdown | None = None, *, item: WorkItem | None = None
    ) -> SignalResult:
        result = self._settle("ignored", item=item, reason=reason)
        return msgspec.structs.replace(result, score=breakdown.final_score) if breakdown else result

    def _settle(
        self, status: SignalStatus, *, item: WorkItem | None = None, reason: str = ""
    ) -> SignalResult:
        meta = ProcessingMeta(
            processed_at=self._now, work_item_id=item.id if item else None, ignored_reason=reason or None
        )
        self._tx.write(put(msgspec.structs.replace(self._signal, status=status, processing_meta=meta)))
        return SignalResult(
            signal_id=self._signal.id, status=status, work_item_id=item.id if item else "", reason=reason,
            score=item.score if item else None,
        )  # fmt: skip
