"""Candidates over HTTP: by their tenant, or by their id alone."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId
from holdfast.services.gwi.domain.votes import CandidateStatus, VoteDecision
from holdfast.services.gwi.models.work import Candidate
from holdfast.services.gwi.operations.candidates import COMMENT_CHARACTERS_MAX, Candidates
from holdfast.services.gwi.routes.dependencies import REPEATABLE, TENANT, Operations, action_route, read_route
from holdfast.services.gwi.routes.work import WORK_PATH, CandidateRequest

_CANDIDATE: Final = "/v1/candidates/{candidate_id:str}"


class CandidatesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of candidates."""

    candidates: list[Candidate]
    cursor: str | None


class VoteRequest(RequestBody, frozen=True):
    """A vote; with `patchHash` it counts only for the patch that the voter has read."""

    decision: VoteDecision = "approved"
    comment: Annotated[str, Meta(max_length=COMMENT_CHARACTERS_MAX)] = ""
    patch_hash: Annotated[str, Meta(max_length=64)] = ""


@read_route(f"{WORK_PATH}/candidates", tenant=TENANT)
async def candidates(
    operations: Operations,
    tenant_id: TenantId,
    status: FromQuery[CandidateStatus | None] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CandidatesResponse:
    """The candidates, the newest first."""
    page = await operations.candidates.page(tenant_id, status=status, limit=limit, cursor=cursor)
    return CandidatesResponse(candidates=page.docs, cursor=page.cursor)


@read_route(_CANDIDATE)
async def candidate(operations: Operations, by: By, candidate_id: FromPath[str]) -> Candidate:
    """One candidate, with its patch, risk and votes."""
    inside = await operations.candidates.enter(by, candidate_id)
    return await operations.candidates.get(inside.tenant_id, candidate_id)


@action_route(_CANDIDATE, Candidates.revise, needs="viewer", idempotent=REPEATABLE)
async def revise(
    operations: Operations, by: By, candidate_id: FromPath[str], data: JSONBody[CandidateRequest]
) -> Candidate:
    """Change plan or patch; votes on another state of the patch are dropped."""
    inside = await operations.candidates.enter(by, candidate_id)
    return await operations.candidates.revise(inside, candidate_id, plan=data.plan, patch=data.patch)


@action_route(f"{_CANDIDATE}/approve", Candidates.vote, needs="viewer", idempotent=REPEATABLE)
async def vote(
    operations: Operations, by: By, candidate_id: FromPath[str], data: JSONBody[VoteRequest]
) -> Candidate:
    """Approve, reject or ask for changes."""
    inside = await operations.candidates.enter(by, candidate_id)
    return await operations.candidates.vote(
        inside, candidate_id, decision=data.decision, comment=data.comment, seen_hash=data.patch_hash
    )


@action_route(f"{_CANDIDATE}/revoke", Candidates.revoke_vote, needs="viewer", idempotent=REPEATABLE)
async def revoke_vote(operations: Operations, by: By, candidate_id: FromPath[str]) -> Candidate:
    """Take one's own approval back."""
    inside = await operations.candidates.enter(by, candidate_id)
    return await operations.candidates.revoke_vote(inside, candidate_id)


@action_route(f"{_CANDIDATE}/apply", Candidates.apply, needs="viewer", idempotent=REPEATABLE, status=202)
async def apply(operations: Operations, by: By, candidate_id: FromPath[str]) -> Candidate:
    """Start the run that makes the pull request; approvals and policy are checked again."""
    inside = await operations.candidates.enter(by, candidate_id)
    return await operations.candidates.apply(inside, candidate_id)


ROUTES: Final = (candidates, candidate, revise, vote, revoke_vote, apply)
