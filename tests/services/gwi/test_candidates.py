"""Candidates: proposed, revised and voted on; each race has one outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from holdfast.services.gwi.candidate_revision import PatchRequest
from holdfast.services.gwi.domain.patches import ChangePlan, FileChange
from holdfast.services.gwi.domain.votes import VoteDecision
from holdfast.services.gwi.models.records import AuditRecord
from holdfast.services.gwi.models.tenants import Member
from holdfast.services.gwi.models.work import Candidate, WorkItem
from holdfast.store import Query, patch
from tests.services.gwi.harness import TENANT, Harness, opened


def a_patch(*paths: str, content: str = "print('sold')\n") -> PatchRequest:
    changes = [FileChange(file=path, action="modify", content=content) for path in paths or ("src/cart.py",)]
    return PatchRequest(changes=changes, commit_message="Mend the cart")


async def an_item(harness: Harness, number: int = 1) -> WorkItem:
    await harness.signal(f"d{number}", resource_number=number, resource_url=f"https://gh/{number}")
    report = await harness.gwi.signals.process(harness.system)
    return await harness.gwi.queue.get(TENANT, report.results[0].work_item_id)


async def a_candidate(harness: Harness, *paths: str, **fields: Any) -> Candidate:
    item = await an_item(harness)
    return await harness.gwi.candidates.create(harness.by("dora"), item.id, patch=a_patch(*paths), **fields)


async def _status(harness: Harness, candidate: Candidate) -> tuple[str, str]:
    item = await harness.gwi.queue.get(TENANT, candidate.work_item_id)
    return (await harness.gwi.candidates.get(TENANT, candidate.id)).status, item.status


async def test_a_patch_makes_a_candidate_ready_with_its_risk_and_receipt(harness: Harness) -> None:
    candidate = await a_candidate(harness, "src/auth/login.py")
    assert await _status(harness, candidate) == ("ready", "awaiting_approval")
    assert (candidate.risk.level, candidate.confidence, candidate.required_approvals) == ("critical", 0, 2)
    assert candidate.patchset is not None
    assert candidate.patchset.branch_name == f"gwi/{candidate.id}"
    receipt = candidate.intent_receipt
    assert (receipt.intent, receipt.actor, receipt.scope) == ("It fails", "dora", "acme/shop")
    assert receipt.policy_approval == "0 of 2 approvals; risk critical"
    assert receipt.evidence == "https://gh/1"
    events = (await harness.store.query(Query(AuditRecord).order_by("-sequence").limit(1))).docs
    assert [(one.action, one.subject, one.intent, one.scope, one.evidence_text) for one in events] == [
        ("candidate.created", candidate.id, "It fails", "acme/shop", "https://gh/1")
    ]


async def test_without_a_patch_a_candidate_is_a_draft_that_nobody_votes_on(quick_harness: Harness) -> None:
    harness = quick_harness
    item = await an_item(harness)
    draft = await harness.gwi.candidates.create(harness.by("dora"), item.id)
    assert await _status(harness, draft) == ("draft", "in_progress")
    assert [step.action for step in draft.plan.steps] == ["review", "modify", "test"]
    with pytest.raises(ConflictError, match="the candidate is draft"):
        await harness.gwi.candidates.vote(harness.by("dean"), draft.id, decision="approved")
    with pytest.raises(ConflictError, match="has the candidate"):
        await harness.gwi.candidates.create(harness.by("dean"), item.id)
    ready = await harness.gwi.candidates.revise(harness.by("dora"), draft.id, patch=a_patch())
    assert (ready.status, ready.plan.affected_files) == ("ready", ["src/cart.py"])


async def test_enough_approvals_of_others_approve(quick_harness: Harness) -> None:
    harness = quick_harness
    candidate = await a_candidate(harness, "deploy.yaml")
    with pytest.raises(ForbiddenError, match="own candidate"):
        await harness.gwi.candidates.vote(harness.by("dora"), candidate.id, decision="approved")
    with pytest.raises(ForbiddenError):
        await harness.gwi.candidates.vote(harness.by("vera"), candidate.id, decision="approved")
    first = await harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="approved")
    again = await harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="approved")
    assert (first.status, again.status, len(again.approvals)) == ("ready", "ready", 1)
    with pytest.raises(ConflictError, match="voted on this patch already"):
        await harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="rejected")
    second = await harness.gwi.candidates.vote(harness.by("adam"), candidate.id, decision="approved")
    assert second.intent_receipt.policy_approval == "2 of 2 approvals by dean, adam; risk high"
    assert await _status(harness, candidate) == ("approved", "approved")


async def test_a_changed_patch_drops_the_votes_and_a_changed_plan_keeps_them(quick_harness: Harness) -> None:
    harness, candidates = quick_harness, quick_harness.gwi.candidates
    candidate = await a_candidate(harness, "deploy.yaml")
    await candidates.vote(harness.by("dean"), candidate.id, decision="approved")
    plan = ChangePlan(summary="The same, said better", complexity=1, affected_files=["deploy.yaml"])
    kept = await candidates.revise(harness.by("dora"), candidate.id, plan=plan)
    assert [one.user_id for one in kept.approvals] == ["dean"]
    await candidates.vote(harness.by("adam"), candidate.id, decision="approved")
    changed = await candidates.revise(
        harness.by("dora"), candidate.id, patch=a_patch("deploy.yaml", content="")
    )
    assert (changed.status, changed.approvals) == ("ready", [])
    assert await _status(harness, candidate) == ("ready", "awaiting_approval")
    with pytest.raises(ConflictError, match="the patch has changed"):
        await candidates.vote(
            harness.by("dean"), candidate.id, decision="approved", seen_hash=candidate.patch_hash
        )


async def test_requested_changes_send_the_candidate_back_with_the_comment(quick_harness: Harness) -> None:
    harness, candidates = quick_harness, quick_harness.gwi.candidates
    candidate = await a_candidate(harness)
    asked = await candidates.vote(
        harness.by("dean"), candidate.id, decision="changes_requested", comment="Add a test"
    )
    assert (asked.status, asked.approvals[0].comment) == ("draft", "Add a test")
    assert await _status(harness, candidate) == ("draft", "in_progress")
    ready = await candidates.revise(harness.by("dora"), candidate.id, patch=a_patch("tests/test_cart.py"))
    assert (ready.status, ready.approvals) == ("ready", [])
    done = await candidates.vote(harness.by("dean"), candidate.id, decision="approved")
    assert done.status == "approved"


async def test_a_rejection_ends_the_candidate_and_its_item(quick_harness: Harness) -> None:
    harness, candidates = quick_harness, quick_harness.gwi.candidates
    candidate = await a_candidate(harness)
    await candidates.vote(harness.by("dean"), candidate.id, decision="rejected", comment="No")
    assert await _status(harness, candidate) == ("rejected", "rejected")
    with pytest.raises(ConflictError):
        await candidates.revise(harness.by("dora"), candidate.id, patch=a_patch("b.py"))
    with pytest.raises(ConflictError):
        await candidates.vote(harness.by("adam"), candidate.id, decision="approved")


async def test_approve_and_reject_at_once_have_exactly_one_outcome(
    harness: Harness, any_url: str, tmp_path: Path
) -> None:
    candidate = await a_candidate(harness)
    votes: list[tuple[str, VoteDecision]] = [("dean", "approved"), ("adam", "rejected"), ("olga", "approved")]
    async with opened(any_url, harness.clock, tmp_path) as other:
        voting = [
            process.gwi.candidates.vote(process.by(name), candidate.id, decision=decision)
            for process, (name, decision) in zip((harness, other, harness), votes, strict=True)
        ]
        results = await asyncio.gather(*voting, return_exceptions=True)
    done = [one for one in results if isinstance(one, Candidate)]
    refused = [one for one in results if isinstance(one, ConflictError)]
    assert (len(done), len(refused)) == (1, 2), results
    stored = await harness.gwi.candidates.get(TENANT, candidate.id)
    assert (stored.status, len(stored.approvals)) == (done[0].status, 1)
    assert await _status(harness, candidate) == (stored.status, stored.status)


async def test_votes_and_revisions_end_with_the_item(quick_harness: Harness) -> None:
    harness = quick_harness
    candidate = await a_candidate(harness)
    await harness.gwi.queue.dismiss(harness.by("dean"), candidate.work_item_id)
    with pytest.raises(ConflictError, match="is dismissed"):
        await harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="approved")
    with pytest.raises(ConflictError, match="is dismissed"):
        await harness.gwi.candidates.revise(harness.by("dora"), candidate.id, patch=a_patch("b.py"))


async def test_only_members_vote_and_the_service_votes_for_them_by_name(quick_harness: Harness) -> None:
    harness, candidates = quick_harness, quick_harness.gwi.candidates
    candidate = await a_candidate(harness)
    changes = {"status": "suspended"}
    await harness.store.commit(patch(Member, f"dean_{TENANT}", changes=changes))
    for by, name in ((harness.by("dean"), ""), (harness.system, ""), (harness.system, "vera")):
        with pytest.raises(ForbiddenError, match="no developer"):
            await candidates.vote(by, candidate.id, decision="approved", user_id=name)
    done = await candidates.vote(harness.system, candidate.id, decision="approved", user_id="adam")
    assert [one.user_id for one in done.approvals] == ["adam"]


async def test_what_is_malformed_or_unknown_is_refused(quick_harness: Harness) -> None:
    harness, candidates = quick_harness, quick_harness.gwi.candidates
    item = await an_item(harness)
    with pytest.raises(InvalidError, match="no path inside"):
        await candidates.create(harness.by("dora"), item.id, patch=a_patch("../etc/passwd"))
    with pytest.raises(NotFoundError):
        await candidates.create(harness.by("dora"), "wi-none")
    with pytest.raises(NotFoundError):
        await candidates.vote(harness.by("dean"), "cand-none", decision="approved")
    with pytest.raises(NotFoundError):
        await candidates.enter(harness.by("nobody"), "cand-none")
