"""Records of runs: each commit of a run appends its audit events, counts its usage and frees its place.

A `Join` of the kit's runs: what it adds lands with the step's own commit, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.kit.audit import AuditEntry, AuditFactory
from holdfast.kit.metering import MeterFactory
from holdfast.kit.runs import StepSummary, TransitionResult
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.runs import AgentRun, RunTokens, RunTotals
from holdfast.services.gwi.models.tenants import Repo
from holdfast.services.gwi.run_starts import AT_ONCE, receipt_of
from holdfast.store import Increment, Transaction, Write, patch

SYSTEM = "system"


class RunRecords:
    """Appends to the audit trail and to the usage ledger in every commit of a run."""

    def __init__(self, *, audits: AuditFactory, meters: MeterFactory) -> None:
        self._audits, self._meters = audits, meters

    async def join(self, tx: Transaction, result: TransitionResult) -> None:
        """Record what a commit of a run is about."""
        run = result.run
        assert isinstance(run, AgentRun)
        audit = self._audits(run.tenant_id, models=AUDIT)
        await audit.queue(tx)
        stored = await tx.get(AgentRun, run.id)
        assert stored is not None
        before = stored.doc
        await self._count(tx, run, before)
        if frees_place(run, before):
            tx.write(*self._meters(run.tenant_id, models=METER).writes_give_back(AT_ONCE))
        if run.completed_at is not None:
            tx.write(_totals(run))
            if run.status in ("completed", "failed"):
                field = "successful_runs" if run.status == "completed" else "failed_runs"
                tx.write(patch(Repo, run.tenant_id, run.repo_id, changes={field: Increment(1)}))
        entries = [*_of_step(run, result.step), *_of_effects(run, before), *_of_run(run)]
        if entries:
            await audit.add(tx, *entries)

    async def _count(self, tx: Transaction, run: AgentRun, before: AgentRun) -> None:
        """Count the tokens since the last commit and, when it has ended, the run, as one fact."""
        metrics = {
            "inputTokens": run.tokens.input - before.tokens.input,
            "outputTokens": run.tokens.output - before.tokens.output,
            "runs": int(run.status in ("completed", "failed")),
        }
        metrics = {name: count for name, count in metrics.items() if count}
        if not metrics:
            return
        meter = self._meters(run.tenant_id, models=METER)
        # A step may fail and be repeated, each time with tokens of its own.
        fact = run.id if "runs" in metrics else f"{run.id} {before.tokens.input + before.tokens.output}"
        await meter.add(
            tx, fact, metrics, kind="run_completed" if "runs" in metrics else "tokens_used",
            metadata={"type": run.type, "repoId": run.repo_id}, fields={"run_id": run.id},
        )  # fmt: skip


def begins_to_wait(run: AgentRun, before: AgentRun) -> bool:
    """Whether a commit leaves the run waiting for approval; a worker's copy may be older than a decision."""
    return run.approval_status == "pending" and before.approval_status == "none"


def frees_place(run: AgentRun, before: AgentRun) -> bool:
    """Whether a commit ends or parks a run that has a place; one that waits, or was rejected, has none."""
    has_place = before.approval_status not in ("pending", "rejected")
    return has_place and (run.completed_at is not None or begins_to_wait(run, before))


def _totals(run: AgentRun) -> Write:
    took_ms = Increment(run.duration_ms or 0)
    changes = {run.status: Increment(1), "duration_ms": took_ms, "updated_at": run.completed_at}
    return patch(RunTotals, run.tenant_id, changes=changes)


def tokens_after(run: AgentRun, kind: str, count: int) -> RunTokens:
    """The run's tokens by kind of work, with `count` more."""
    now = run.tokens_used or RunTokens()
    return msgspec.structs.replace(now, **{kind: getattr(now, kind) + count, "total": now.total + count})


def _of_step(run: AgentRun, step: StepSummary | None) -> Iterator[AuditEntry]:
    if step is None:
        return
    details = {"agent": step.name, "stepId": step.id, "attempts": step.attempts}
    if step.status == "completed":
        yield _entry(run, "step_completed", details | {"durationMs": step.duration_ms})
    elif step.error is not None:
        again = step.status == "pending"
        yield _entry(run, "step_failed", details | {"error": step.error, "again": again})


def _of_effects(run: AgentRun, before: AgentRun) -> Iterator[AuditEntry]:
    for effect in run.effects[len(before.effects) :]:
        yield _entry(run, effect.kind, {"url": effect.url, **(effect.details or {})}, evidence=effect.url)
    if begins_to_wait(run, before):
        files = [one.file for one in run.proposed_changes or []]
        yield _entry(run, "approval_requested", {"files": files, "reason": run.approval_reason})


def _of_run(run: AgentRun) -> Iterator[AuditEntry]:
    if run.completed_at is not None:
        details: dict[str, Any] = {
            "durationMs": run.duration_ms,
            "tokens": run.tokens.input + run.tokens.output,
        }
        if run.error is not None:
            details["error"] = run.error
        yield _entry(run, f"run_{run.status}", details)


def _entry(run: AgentRun, action: str, details: dict[str, Any], *, evidence: str = "") -> AuditEntry:
    change = ", ".join(one.file for one in run.proposed_changes or [])[:500]
    return AuditEntry(
        action=action, actor=SYSTEM, subject=run.id, details=details,
        fields=receipt_of(run, change=change, evidence=evidence),
    )  # fmt: skip
