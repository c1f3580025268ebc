"""Candidates as documents: made for an item, revised, with their risk, ballot and receipt. No store."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model import schema_of
from holdfast.plural import plural
from holdfast.services.gwi.domain.patches import (
    ChangePlan,
    FileChange,
    Patchset,
    branch_name,
    check_patchset,
    files_of,
    patch_hash,
)
from holdfast.services.gwi.domain.planning import draft_plan, plan_of_patch
from holdfast.services.gwi.domain.receipts import IntentReceipt, receipt
from holdfast.services.gwi.domain.risk import assess
from holdfast.services.gwi.domain.votes import Ballot, CandidateStatus, count_approvals, votes_kept
from holdfast.services.gwi.models.work import Candidate, WorkItem


class PatchRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A patch as it is proposed: its files with their new content, on top of a commit or the newest one."""

    changes: list[FileChange]
    commit_message: str
    base_commit: str = ""


def new_candidate(
    item: WorkItem, plan: ChangePlan | None, patch: PatchRequest | None, *, author: str, now: datetime
) -> Candidate:
    """A candidate for an item; its branch has its own id, so that nothing applies it on a second one."""
    draft = plan or draft_plan(item.type, item.title, files=item.evidence.files or ())
    candidate = Candidate(
        work_item_id=item.id, tenant_id=item.tenant_id, plan=draft, risk=assess((), complexity=1),
        confidence=0, required_approvals=1, created_by=author, created_at=now, updated_at=now,
        intent_receipt=receipt("", "", actor=author, at=now, scope="", approval="", evidence=""),
    )  # fmt: skip
    schema_of(Candidate).assign_id(candidate)
    return revised(candidate, item, plan=plan, patch=patch, now=now)


def revised(
    candidate: Candidate,
    item: WorkItem,
    *,
    plan: ChangePlan | None,
    patch: PatchRequest | None,
    now: datetime,
) -> Candidate:
    """The candidate with another plan or patch, assessed again; only votes on this very patch are left."""
    patchset = candidate.patchset if patch is None else _patchset(candidate.id, patch)
    if plan is None:
        plan = candidate.plan if patchset is None else plan_of_patch(item.title, patchset)
    risk, digest = assess(files_of(plan, patchset), complexity=plan.complexity), patch_hash(patchset)
    kept = votes_kept(candidate.approvals, patch_hash=digest)
    enough = count_approvals(kept, patch_hash=digest) >= risk.required_approvals
    approved = enough and candidate.status in ("approved", "failed")
    status: CandidateStatus = "draft" if patchset is None else "approved" if approved else "ready"
    changed = msgspec.structs.replace(
        candidate, plan=plan, patchset=patchset, patch_hash=digest, risk=risk, confidence=risk.confidence,
        required_approvals=risk.required_approvals, approvals=kept, status=status, failure_reason=None,
        updated_at=now,
    )  # fmt: skip
    return msgspec.structs.replace(changed, intent_receipt=receipt_for(changed, item, at=now))


def _patchset(candidate_id: str, patch: PatchRequest) -> Patchset:
    patchset = Patchset(
        branch_name=branch_name(candidate_id), base_commit=patch.base_commit, changes=patch.changes,
        commit_message=patch.commit_message,
    )  # fmt: skip
    check_patchset(patchset)
    return patchset


def receipt_for(candidate: Candidate, item: WorkItem, *, at: datetime) -> IntentReceipt:
    """Who wants which change, where, why, and who approved it."""
    count = len(files_of(candidate.plan, candidate.patchset))
    approvers = [one.user_id for one in candidate.approvals if one.decision == "approved"]
    names = f" by {', '.join(approvers)}" if approvers else ""
    return receipt(
        item.title, f"{candidate.plan.summary} ({plural(count, 'file')})",
        actor=candidate.created_by, at=at, scope=item.repo.full_name if item.repo else "",
        approval=f"{len(approvers)} of {candidate.required_approvals} approvals{names}; "
        f"risk {candidate.risk.level}",
        evidence=", ".join(item.evidence.source_urls[-3:]) or f"work item {item.id}",
    )  # fmt: skip


def ballot_of(candidate: Candidate) -> Ballot:
    return Ballot(
        status=candidate.status, author=candidate.created_by, patch_hash=candidate.patch_hash,
        required=candidate.required_approvals, votes=candidate.approvals,
    )  # fmt: skip
