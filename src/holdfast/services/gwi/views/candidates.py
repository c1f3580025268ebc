"""Pages of candidates: their plan, patch, risk and votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from holdfast.service import Page, PageRequest
from holdfast.services.gwi.domain.patches import FileChange
from holdfast.services.gwi.domain.votes import CandidateStatus
from holdfast.services.gwi.models.work import Candidate
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.candidates import OPEN

ROWS: Final = 50
LINES_SHOWN: Final = 2_000
STATUSES: Final = get_args(CandidateStatus)


class DiffLine(msgspec.Struct, frozen=True):
    """A line of a diff as it is shown."""

    kind: str  # added, removed, hunk or same
    text: str


class ShownChange(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a patch as it is shown, and as fields of a form."""

    file: str
    action: str
    content: str
    lines: Sequence[DiffLine]
    more: int


def shown_change(change: FileChange | None) -> ShownChange:
    """A change of a file, or an empty one for a form."""
    if change is None:
        return ShownChange(file="", action="modify", content="", lines=(), more=0)
    lines = _lines_of(change)
    return ShownChange(
        file=change.file, action=change.action, content=change.content or "", lines=lines[:LINES_SHOWN],
        more=max(0, len(lines) - LINES_SHOWN),
    )  # fmt: skip


def _lines_of(change: FileChange) -> list[DiffLine]:
    """The lines of the diff; without one the new content, all of it added."""
    if change.diff is None:
        return [DiffLine("added", f"+{line}") for line in (change.content or "").splitlines()]
    body = [line for line in change.diff.splitlines() if not line.startswith(("+++ ", "--- ", "diff "))]
    kinds = {"+": "added", "-": "removed", "@": "hunk"}
    return [DiffLine(kinds.get(line[:1], "same"), line) for line in body]


class CandidateViews:
    """Data of the pages."""

    def __init__(self, gwi: Gwi) -> None:
        self._gwi = gwi

    async def candidates(self, ask: PageRequest) -> Mapping[str, Any]:
        status: Any = ask.choice("status", ("all", *STATUSES), default="all")
        page = await self._gwi.candidates.page(
            ask.tenant_id, status=None if status == "all" else status, limit=ROWS, cursor=ask.cursor
        )
        return {"rows": page.docs, "after": page.cursor, "status": status, "statuses": ("all", *STATUSES)}

    async def candidate(self, ask: PageRequest) -> Mapping[str, Any]:
        candidate = await self._gwi.candidates.get(ask.tenant_id, ask.path["candidate_id"])
        item = await self._gwi.queue.get(ask.tenant_id, candidate.work_item_id)
        changes = candidate.patchset.changes if candidate.patchset else []
        return {
            "title": candidate.plan.summary, "candidate": candidate, "item": item,
            "changes": [shown_change(one) for one in changes] or [shown_change(None)],
            "has_patch": bool(changes), "can_vote": _may_vote(ask, candidate),
            "can_revoke": _may_revoke(ask, candidate),
            "can_apply": candidate.status in ("approved", "failed") and not candidate.applying,
            "can_revise": candidate.status in OPEN and not candidate.applying,
        }  # fmt: skip


def _may_vote(ask: PageRequest, candidate: Candidate) -> bool:
    """Whether to show the votes' buttons; the operation decides."""
    user_id = ask.caller.user_id
    voted = any(one.user_id == user_id for one in candidate.approvals)
    return candidate.status == "ready" and user_id != candidate.created_by and not voted


def _may_revoke(ask: PageRequest, candidate: Candidate) -> bool:
    voted = any(one.user_id == ask.caller.user_id for one in candidate.approvals)
    return voted and candidate.status in ("ready", "approved") and not candidate.applying


def pages(gwi: Gwi) -> list[Page]:
    views, live = CandidateViews(gwi), ("gwi",)
    return [
        Page(
            path="/candidates", title="Candidates", template="candidates.html", data=views.candidates,
            live=live,
        ),
        Page(
            path="/candidates/{candidate_id}", title="Candidate", template="candidate.html",
            data=views.candidate, live=live, nav=False,
        ),
    ]  # fmt: skip
