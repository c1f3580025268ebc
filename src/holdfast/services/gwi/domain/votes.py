"""Votes on a candidate: who may vote, and the one outcome they have. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from holdfast.errors import ConflictError, ForbiddenError

VoteDecision = Literal["approved", "rejected", "changes_requested"]
CandidateStatus = Literal["draft", "ready", "approved", "rejected", "applied", "failed"]


class Vote(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One person's decision about one state of the patch."""

    user_id: str
    decision: VoteDecision
    comment: str | None = None
    timestamp: datetime
    patch_hash: str = ""


class Ballot(msgspec.Struct, frozen=True, kw_only=True):
    """What a vote is counted against."""

    status: CandidateStatus
    author: str
    patch_hash: str
    required: int
    votes: Sequence[Vote]


def check_vote(ballot: Ballot, vote: Vote) -> None:
    """Raise ForbiddenError for one's own candidate, ConflictError for a vote that does not count."""
    if ballot.status != "ready":
        raise ConflictError(f"the candidate is {ballot.status}; people vote on one that is ready")
    if vote.user_id == ballot.author:
        raise ForbiddenError("nobody votes on their own candidate; ask somebody else")
    if vote.patch_hash != ballot.patch_hash:
        raise ConflictError("the patch has changed since; read it again, then vote")
    if any(one.user_id == vote.user_id for one in ballot.votes):
        raise ConflictError(f"{vote.user_id} has voted on this patch already")


def outcome(ballot: Ballot, vote: Vote) -> CandidateStatus:
    """The candidate's status after a vote that counts.

    Example: `outcome(ballot, approval)` is `"approved"` once enough people have approved this very patch
    """
    check_vote(ballot, vote)
    if vote.decision == "rejected":
        return "rejected"
    if vote.decision == "changes_requested":
        return "draft"
    approvals = count_approvals([*ballot.votes, vote], patch_hash=ballot.patch_hash)
    return "approved" if approvals >= ballot.required else "ready"


def count_approvals(votes: Sequence[Vote], *, patch_hash: str) -> int:
    """The people who approved this state of the patch."""
    return len({v.user_id for v in votes if v.decision == "approved" and v.patch_hash == patch_hash})


def votes_kept(votes: Sequence[Vote], *, patch_hash: str) -> list[Vote]:
    """The votes that still count after a revision: approvals of the very same patch."""
    return [v for v in votes if v.decision == "approved" and v.patch_hash == patch_hash]
