"""A resident's scores over the runs: of finished ones alone.

A run keeps its scores as it goes, so those of one that is under way, failed or was cancelled lie among the
others; they are no result, and nobody is shown them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from holdfast.kit.runs.models import RunStatus
from holdfast.services.renewals.models import CalculationJob, RiskScore
from holdfast.store import Query, QueryPage, Snapshot, Store

UNFINISHED: Final[tuple[RunStatus, ...]] = ("pending", "running", "failed", "cancelled")
# How often a page is filled up again; only after so many runs in a row that did not finish is it short.
FILLS_MAX: Final = 20


class History:
    """The histories of one portfolio's residents.

    Example: `page = await History(store).page("resident-1", limit=20)`
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self, resident_id: str, *, before: datetime | None = None, limit: int = 50, cursor: str | None = None
    ) -> QueryPage[RiskScore]:
        """A resident's scores of finished runs, the newest first; with `before`, those from before then."""
        query = Query(RiskScore).where("resident_id", "==", resident_id)
        if before is not None:
            query = query.where("calculated_at", "<", before)
        query = query.order_by("-calculated_at")
        kept: list[Snapshot[RiskScore]] = []
        for _ in range(FILLS_MAX):
            page = await self._store.query(query.limit(limit - len(kept)).after(cursor))
            kept += await self._finished(page.items)
            cursor = page.cursor
            if cursor is None or len(kept) == limit:
                break
        return QueryPage(kept, cursor)

    async def _finished(self, scores: Sequence[Snapshot[RiskScore]]) -> Sequence[Snapshot[RiskScore]]:
        """Those whose run came to its end, which is asked after they are read: a run only ever ends."""
        times: dict[str, list[datetime]] = {}
        for one in scores:
            times.setdefault(one.doc.property_id, []).append(one.doc.calculated_at)
        left_out = {
            (property_id, at)
            for property_id, those in times.items()
            for at in await self._unfinished(property_id, since=min(those), until=max(those))
        }
        return [one for one in scores if (one.doc.property_id, one.doc.calculated_at) not in left_out]

    async def _unfinished(self, property_id: str, *, since: datetime, until: datetime) -> list[datetime]:
        """When the runs of a property were made that did not finish; mostly there are none."""
        query = Query(CalculationJob).where("property_id", "==", property_id)
        query = query.where("status", "in", list(UNFINISHED)).order_by("-calculated_at")
        query = query.where("calculated_at", ">=", since).where("calculated_at", "<=", until)
        return [item.doc.calculated_at async for item in self._store.scan(query)]
