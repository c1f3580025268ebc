"""Applying a candidate: the run starts in the commit that checks approvals and policy again, and ends it.

approved │ failed ──start──► applying ──run completed──► applied, with the pull request
                                      └─run failed or cancelled──► failed, with the reason
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import ConflictError, ForbiddenError
from holdfast.kit.audit import AuditEntry, AuditFactory
from holdfast.kit.runs import TransitionResult
from holdfast.model.access import ROLES
from holdfast.services.gwi.candidate_revision import receipt_for
from holdfast.services.gwi.domain.patches import changed_lines, deletes_files, files_of
from holdfast.services.gwi.domain.policy import PolicyRequest, decide_policy, read_policy
from holdfast.services.gwi.domain.risk import assess
from holdfast.services.gwi.domain.votes import count_approvals
from holdfast.services.gwi.models.records import AUDIT
from holdfast.services.gwi.models.runs import AgentRun, RunTrigger, TriggerSource
from holdfast.services.gwi.models.tenants import Member, repo_id_of
from holdfast.services.gwi.models.work import LIVE, Candidate, WorkItem
from holdfast.services.gwi.run_records import SYSTEM
from holdfast.services.gwi.run_starts import RunRequest, RunStarts, tenant_in
from holdfast.store import Transaction, put

NO_PULL: Final = "the run ended without a pull request"
REASON_CHARACTERS_MAX: Final = 1_000


class CandidateApplication:
    """Starts the runs that apply candidates, and takes what became of them into the candidate."""

    def __init__(self, starts: RunStarts, audits: AuditFactory) -> None:
        self._starts, self._audits = starts, audits

    async def start(
        self, tx: Transaction, candidate: Candidate, item: WorkItem, *, actor: str, source: TriggerSource
    ) -> AgentRun:
        """Start the run of an approved candidate in the caller's transaction.

        ForbiddenError where policy or approvals do not allow it, ConflictError for another state.
        """
        if candidate.status not in ("approved", "failed"):
            raise ConflictError(f"the candidate is {candidate.status}; only an approved one can be applied")
        if item.repo is None or item.repo.id is None:
            raise ConflictError("its work item names no repository, so there is nowhere to apply it")
        await self._check(tx, candidate, item, actor=actor)
        request = RunRequest(
            type="autopilot", repo_id=repo_id_of(item.repo.id), title=item.title, approved=True,
            trigger=RunTrigger(source=source, user_id=actor), number=item.resource_number,
            candidate_id=candidate.id, work_item_id=item.id,
        )  # fmt: skip
        run = await self._starts.start(tx, candidate.tenant_id, request, actor=actor)
        now = run.created_at
        candidate.status, candidate.run_id, candidate.applying = "approved", run.id, True
        candidate.failure_reason, candidate.updated_at = None, now
        candidate.intent_receipt = receipt_for(candidate, item, at=now)
        tx.write(put(candidate))
        return run

    async def _check(self, tx: Transaction, candidate: Candidate, item: WorkItem, *, actor: str) -> None:
        """Count the approvals of those who may still vote, and ask the policy of this moment."""
        patchset, tenant_id = candidate.patchset, candidate.tenant_id
        voters = [vote.user_id for vote in candidate.approvals if vote.user_id != candidate.created_by]
        entitled = [user_id for user_id in voters if await may_vote(tx, tenant_id, user_id)]
        counted = [vote for vote in candidate.approvals if vote.user_id in entitled]
        approvals = count_approvals(counted, patch_hash=candidate.patch_hash)
        files = files_of(candidate.plan, patchset)
        required = assess(files, complexity=candidate.plan.complexity).required_approvals
        tenant = await tenant_in(tx, tenant_id)
        policy = read_policy(tenant.policy.document if tenant.policy and tenant.policy.valid else None)
        decision = decide_policy(policy, PolicyRequest(
            action_class="DESTRUCTIVE" if deletes_files(patchset) else "WRITE_NON_DESTRUCTIVE",
            action="candidate.apply", repo=item.repo.full_name if item.repo else "", paths=files, actor=actor,
            branch=patchset.branch_name if patchset else "", changed_lines=changed_lines(patchset),
            approvals=approvals,
        ))  # fmt: skip
        if not decision.allowed:
            raise ForbiddenError(f"the policy refuses it: {decision.reason}", "policy")
        if approvals < required:
            raise ForbiddenError(
                f"it has {approvals} of {required} approvals by people who may vote", "approvals"
            )

    async def join(self, tx: Transaction, result: TransitionResult) -> None:
        """In the commit that ends a run: its candidate is applied, or failed with the reason."""
        run = result.run
        assert isinstance(run, AgentRun)
        if run.candidate_id is None or run.completed_at is None:
            return
        audit = self._audits(run.tenant_id, models=AUDIT)
        await audit.queue(tx)
        stored = await tx.get(Candidate, run.tenant_id, run.candidate_id)
        if stored is None or stored.doc.run_id != run.id or not stored.doc.applying:
            return
        candidate, applied = stored.doc, run.status == "completed" and bool(run.pr_url)
        candidate.applying, candidate.updated_at = False, run.completed_at
        if applied:
            candidate.status, candidate.applied_at = "applied", run.completed_at
            candidate.resulting_pr_url = run.pr_url
            await self._complete_item(tx, candidate)
        else:
            reason = NO_PULL if run.status == "completed" else run.error or run.cancel_reason or run.status
            candidate.status, candidate.failure_reason = "failed", reason[:REASON_CHARACTERS_MAX]
        tx.write(put(candidate))
        await audit.add(tx, _entry(candidate))

    async def _complete_item(self, tx: Transaction, candidate: Candidate) -> None:
        stored = await tx.get(WorkItem, candidate.tenant_id, candidate.work_item_id)
        if stored is not None and stored.doc.status in LIVE:
            stored.doc.status, stored.doc.updated_at = "completed", candidate.updated_at
            stored.doc.close_reason = "its candidate was applied"
            pulls = stored.doc.evidence.related_prs or []
            stored.doc.evidence.related_prs = [*pulls, candidate.resulting_pr_url or ""]
            tx.write(put(stored.doc))


def _entry(candidate: Candidate) -> AuditEntry:
    details = {
        "pullRequest": candidate.resulting_pr_url, "reason": candidate.failure_reason,
        "workItem": candidate.work_item_id, "patchHash": candidate.patch_hash,
    }  # fmt: skip
    return AuditEntry(
        action=f"candidate.{candidate.status}", actor=SYSTEM, subject=candidate.id, details=details,
        fields={**candidate.intent_receipt.audit_fields, "run_id": candidate.run_id or ""},
    )  # fmt: skip


async def may_vote(tx: Transaction, tenant_id: str, user_id: str) -> bool:
    """Whether somebody is a member who may vote, read in a transaction."""
    role = await member_role(tx, tenant_id, user_id)
    return role is not None and ROLES.index(role) >= ROLES.index("developer")


async def member_role(tx: Transaction, tenant_id: str, user_id: str) -> str | None:
    """A person's active role, read in a transaction; None for others."""
    stored = await tx.get(Member, f"{user_id}_{tenant_id}")
    if stored is None or stored.doc.status != "active" or stored.doc.user_id != user_id:
        return None
    return stored.doc.role
