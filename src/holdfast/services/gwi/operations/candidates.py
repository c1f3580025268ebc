"""Candidates: a plan and its patch for a work item, which people vote on and a run applies.

    draft ──patch──► ready ──enough approvals──► approved ──run completed──► applied
      ▲                │ any rejection ──► rejected    │ run failed ──► failed ──apply again──► approved
      └─changes requested

A candidate and its item change in one commit. Votes are bound to the hash of the patch; whoever applies it
has approvals and policy checked again in the commit that starts the run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from holdfast.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from holdfast.kit.access.authorization import has_role
from holdfast.operation import Operator
from holdfast.services.gwi.candidate_application import CandidateApplication, may_vote
from holdfast.services.gwi.candidate_revision import (
    PatchRequest,
    ballot_of,
    new_candidate,
    receipt_for,
    revised,
)
from holdfast.services.gwi.domain.patches import ChangePlan
from holdfast.services.gwi.domain.votes import CandidateStatus, Vote, VoteDecision, count_approvals, outcome
from holdfast.services.gwi.models.runs import TriggerSource
from holdfast.services.gwi.models.work import LIVE, Candidate, WorkItem, WorkStatus
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.operations.queue import item_in
from holdfast.services.gwi.patch_preparation import PatchPreparation
from holdfast.store import Query, QueryPage, Store, Transaction, create, put

COMMENT_CHARACTERS_MAX: Final = 2_000
# One of these is decided about; a new one for its item waits until it is not.
OPEN: Final[tuple[CandidateStatus, ...]] = ("draft", "ready", "approved", "failed")
_ITEM_STATUS: Final[dict[CandidateStatus, WorkStatus]] = {
    "draft": "in_progress", "ready": "awaiting_approval", "approved": "approved", "rejected": "rejected",
    "applied": "completed", "failed": "approved",
}  # fmt: skip


class Candidates:
    """Acts on candidates, and their reads.

    Example: `candidate = await candidates.create(by, "wi-1", patch=patch)`
    """

    def __init__(
        self, store: Store, application: CandidateApplication, preparation: PatchPreparation
    ) -> None:
        self._store, self._clock = store, store.clock
        self._application, self._preparation = application, preparation

    async def page(
        self,
        tenant_id: str,
        *,
        status: CandidateStatus | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> QueryPage[Candidate]:
        """Candidates, the newest first."""
        query = Query(Candidate).order_by("-created_at").limit(limit).after(cursor)
        if status is not None:
            query = query.where("status", "==", status)
        return await self._store.tenant(tenant_id).query(query)

    async def get(self, tenant_id: str, candidate_id: str) -> Candidate:
        """A candidate of a tenant, or NotFoundError."""
        stored = await self._store.tenant(tenant_id).get(Candidate, tenant_id, candidate_id)
        return _found(stored.doc if stored else None, candidate_id)

    async def enter(self, by: Operator, candidate_id: str) -> Operator:
        """The caller in the candidate's tenant; NotFoundError, too, for whoever has no role there.

        Example: `await candidates.vote(await candidates.enter(by, id), id, decision="approved")`
        """
        query = Query(Candidate).where("id", "==", candidate_id).across_parents()
        docs = (await self._store.privileged().query(query)).docs
        candidate = _found(docs[0] if docs else None, candidate_id)
        inside = await by.in_tenant(candidate.tenant_id)
        if not has_role(inside.caller, "viewer", inside.tenant_id):
            raise _unknown(candidate_id)
        return inside

    @gwi_operation("candidate.created", verb="propose", needs="developer")
    async def create(
        self, by: Operator, item_id: str, *, plan: ChangePlan | None = None, patch: PatchRequest | None = None
    ) -> Candidate:
        """Propose a change for an item: ready to be voted on with a patch, else a draft."""
        prepared = await self._prepare(by.tenant_id, item_id, patch)
        now, author = self._clock.now(), author_of(by)

        async def act(tx: Transaction) -> Candidate:
            item = await item_in(tx, by.tenant_id, item_id)
            await _check_free(tx, item)
            candidate = new_candidate(item, plan, prepared, author=author, now=now)
            tx.write(create(candidate))
            item.candidate_id = candidate.id
            _follow(tx, item, candidate, now=now)
            return candidate

        return await self._commit(by, act)

    @gwi_operation("candidate.revised", verb="propose", needs="developer", subject="candidate_id")
    async def revise(
        self,
        by: Operator,
        candidate_id: str,
        *,
        plan: ChangePlan | None = None,
        patch: PatchRequest | None = None,
    ) -> Candidate:
        """Change plan or patch; votes on another state of the patch are dropped."""
        if plan is None and patch is None:
            raise InvalidError("give a plan, a patch or both")
        before = await self.get(by.tenant_id, candidate_id)
        prepared = await self._prepare(by.tenant_id, before.work_item_id, patch)
        now = self._clock.now()

        async def act(tx: Transaction) -> Candidate:
            candidate, item = await candidate_in(tx, by.tenant_id, candidate_id)
            if candidate.status not in OPEN or candidate.applying:
                raise ConflictError(f"the candidate is {_state(candidate)}; it can't be changed any more")
            changed = revised(candidate, item, plan=plan, patch=prepared, now=now)
            tx.write(put(changed))
            _follow(tx, item, changed, now=now)
            return changed

        return await self._commit(by, act)

    @gwi_operation("candidate.voted", verb="vote", needs="developer", subject="candidate_id")
    async def vote(
        self,
        by: Operator,
        candidate_id: str,
        *,
        decision: VoteDecision,
        comment: str = "",
        seen_hash: str = "",
        user_id: str = "",
    ) -> Candidate:
        """Vote on the patch; `seen_hash` is the one that the voter has read, where it may have changed.

        Repeating one's own vote changes nothing. The service itself votes for the member `user_id`.
        """
        voter = _voter(by, user_id)
        if len(comment) > COMMENT_CHARACTERS_MAX:
            raise InvalidError(f"a comment has at most {COMMENT_CHARACTERS_MAX} characters", "comment")
        now, repeated = self._clock.now(), list[Candidate]()

        async def act(tx: Transaction) -> Candidate | Literal[False]:
            candidate, item = await candidate_in(tx, by.tenant_id, candidate_id)
            await _check_voter(tx, by.tenant_id, voter)
            vote = Vote(
                user_id=voter, decision=decision, comment=comment or None, timestamp=now,
                patch_hash=seen_hash or candidate.patch_hash,
            )  # fmt: skip
            if any(_same(one, vote) for one in candidate.approvals):
                repeated[:] = [candidate]
                return False
            candidate.status = outcome(ballot_of(candidate), vote)
            candidate.approvals = [*candidate.approvals, vote]
            candidate.updated_at = now
            candidate.intent_receipt = receipt_for(candidate, item, at=now)
            tx.write(put(candidate))
            _follow(tx, item, candidate, now=now)
            return candidate

        voted = await self._commit(by, act, decision=decision, voter=voter)
        return repeated[0] if repeated else voted

    @gwi_operation("candidate.vote_revoked", verb="vote", needs="developer", subject="candidate_id")
    async def revoke_vote(self, by: Operator, candidate_id: str, *, user_id: str = "") -> Candidate:
        """Take one's own approval back, until the candidate is applied; it may then lack approvals."""
        now, voter = self._clock.now(), _voter(by, user_id)

        async def act(tx: Transaction) -> Candidate:
            candidate, item = await candidate_in(tx, by.tenant_id, candidate_id)
            if candidate.status not in ("ready", "approved") or candidate.applying:
                raise ConflictError(f"the candidate is {_state(candidate)}; a vote on it can't be taken back")
            left = [vote for vote in candidate.approvals if vote.user_id != voter]
            if len(left) == len(candidate.approvals):
                raise ConflictError(f"{voter!r} has not voted on this candidate")
            enough = count_approvals(left, patch_hash=candidate.patch_hash) >= candidate.required_approvals
            candidate.approvals, candidate.status = left, "approved" if enough else "ready"
            candidate.updated_at = now
            candidate.intent_receipt = receipt_for(candidate, item, at=now)
            tx.write(put(candidate))
            _follow(tx, item, candidate, now=now)
            return candidate

        return await self._commit(by, act, voter=voter)

    @gwi_operation("candidate.application_started", verb="apply", needs="admin", subject="candidate_id")
    async def apply(self, by: Operator, candidate_id: str, *, source: TriggerSource = "api") -> Candidate:
        """Start the run that makes the pull request; one that is being or was applied stays as it is.

        Approvals and policy are checked again in this very commit. After a failure it may be applied again.
        """
        unchanged = list[Candidate]()

        async def act(tx: Transaction) -> Candidate | Literal[False]:
            candidate, item = await candidate_in(tx, by.tenant_id, candidate_id)
            if candidate.applying or candidate.status == "applied":
                unchanged[:] = [candidate]
                return False
            await self._application.start(tx, candidate, item, actor=author_of(by), source=source)
            return candidate

        started = await self._commit(by, act)
        return unchanged[0] if unchanged else started

    async def _prepare(self, tenant_id: str, item_id: str, patch: PatchRequest | None) -> PatchRequest | None:
        """Compare a patch with the repository, before the transaction."""
        if patch is None:
            return None
        stored = await self._store.tenant(tenant_id).get(WorkItem, tenant_id, item_id)
        return patch if stored is None else await self._preparation.prepare(stored.doc, patch)

    async def _commit(self, by: Operator, act: Any, **details: Any) -> Candidate:
        candidate: Candidate = await by.commit(
            act, subject=lambda changed: changed.id,
            details=lambda changed: {
                **details, "status": changed.status, "workItem": changed.work_item_id,
                "patchHash": changed.patch_hash,
            },
            fields=lambda changed: {
                **changed.intent_receipt.audit_fields, "run_id": changed.run_id or "",
            },
        )  # fmt: skip
        return candidate


def _same(one: Vote, other: Vote) -> bool:
    return (one.user_id, one.decision, one.patch_hash) == (other.user_id, other.decision, other.patch_hash)


def _voter(by: Operator, user_id: str) -> str:
    """Whose vote it is: one's own, or that of the member for whom the service acts."""
    return user_id if user_id and by.caller.service else author_of(by)


def author_of(by: Operator) -> str:
    """Who proposes or votes."""
    return by.caller.user_id or by.actor


async def candidate_in(tx: Transaction, tenant_id: str, candidate_id: str) -> tuple[Candidate, WorkItem]:
    """A candidate and its live item, read in a transaction."""
    stored = await tx.get(Candidate, tenant_id, candidate_id)
    candidate = _found(stored.doc if stored else None, candidate_id)
    item = await item_in(tx, tenant_id, candidate.work_item_id)
    if item.status not in LIVE and candidate.status in OPEN:
        raise ConflictError(f"its work item {item.id} is {item.status}")
    return candidate, item


async def _check_free(tx: Transaction, item: WorkItem) -> None:
    if item.status not in LIVE:
        raise ConflictError(f"the work item is {item.status}; only a live one gets a candidate")
    if item.candidate_id is None:
        return
    stored = await tx.get(Candidate, item.tenant_id, item.candidate_id)
    if stored is not None and stored.doc.status in OPEN:
        raise ConflictError(f"the work item has the candidate {item.candidate_id}; revise that one")


async def _check_voter(tx: Transaction, tenant_id: str, voter: str) -> None:
    if not await may_vote(tx, tenant_id, voter):
        raise ForbiddenError(f"{voter!r} is no developer of this tenant", needs=("developer",))


def _follow(tx: Transaction, item: WorkItem, candidate: Candidate, *, now: datetime) -> None:
    """Move the item where its candidate is."""
    item.status, item.updated_at = _ITEM_STATUS[candidate.status], now
    tx.write(put(item))


def _state(candidate: Candidate) -> str:
    return f"being applied by {candidate.run_id}" if candidate.applying else candidate.status


def _found(candidate: Candidate | None, candidate_id: str) -> Candidate:
    if candidate is None:
        raise _unknown(candidate_id)
    return candidate


def _unknown(candidate_id: str) -> NotFoundError:
    return NotFoundError(f"there is no candidate {candidate_id!r}", "candidate")
