"""Pages of signals, the queue and its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from holdfast.service import Page, PageRequest
from holdfast.services.gwi.models.work import LIVE, SignalStatus
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.queue import STATUSES, TYPES, QueueFilter
from holdfast.services.gwi.views.candidates import shown_change

ROWS: Final = 50
SIGNALS_SHOWN: Final = 20
LIVE_TAB: Final = "live"
SNOOZED_TAB: Final = "snoozed"
SIGNAL_STATUSES: Final = get_args(SignalStatus)


class WorkViews:
    """Data of the pages."""

    def __init__(self, gwi: Gwi) -> None:
        self._gwi = gwi

    async def queue(self, ask: PageRequest) -> Mapping[str, Any]:
        tabs = (LIVE_TAB, *STATUSES, SNOOZED_TAB)
        tab = ask.choice("status", tabs, default=LIVE_TAB)
        type = ask.choice("type", TYPES, default="")
        statuses: Any = LIVE if tab in (LIVE_TAB, SNOOZED_TAB) else (tab,)
        chosen = QueueFilter(
            statuses=statuses, type=type or None, repo=ask.text("repo") or None,  # type: ignore[arg-type]
            assignee=ask.text("assignee") or None, min_score=ask.number("minScore", 0, high=100) or None,
            snoozed=tab == SNOOZED_TAB,
        )  # fmt: skip
        page = await self._gwi.queue.page(ask.tenant_id, chosen, limit=ROWS, cursor=ask.cursor)
        query = {
            name: value
            for name, value in (
                ("status", tab), ("type", type), ("repo", chosen.repo), ("assignee", chosen.assignee),
                ("minScore", chosen.min_score),
            )
            if value
        }  # fmt: skip
        return {
            "rows": page.docs, "after": page.cursor, "tabs": tabs, "tab": tab, "types": TYPES, "type": type,
            "chosen": chosen, "query": query, "stats": await self._gwi.queue.stats(ask.tenant_id),
        }  # fmt: skip

    async def item(self, ask: PageRequest) -> Mapping[str, Any]:
        item = await self._gwi.queue.get(ask.tenant_id, ask.path["item_id"])
        signals = [
            await self._gwi.signals.get(ask.tenant_id, one) for one in item.signal_ids[-SIGNALS_SHOWN:]
        ]
        candidate = None
        if item.candidate_id is not None:
            candidate = await self._gwi.candidates.get(ask.tenant_id, item.candidate_id)
        return {
            "title": item.title, "item": item, "signals": signals[::-1], "candidate": candidate,
            "live_item": item.status in LIVE,
            "can_propose": item.status in LIVE
            and (candidate is None or candidate.status in ("rejected", "applied")),
            "changes": [shown_change(None)],
        }  # fmt: skip

    async def signals(self, ask: PageRequest) -> Mapping[str, Any]:
        status: Any = ask.choice("status", ("all", *SIGNAL_STATUSES), default="all")
        page = await self._gwi.signals.page(
            ask.tenant_id, status=None if status == "all" else status, limit=ROWS, cursor=ask.cursor
        )
        return {
            "rows": page.docs, "after": page.cursor, "status": status, "statuses": ("all", *SIGNAL_STATUSES),
        }  # fmt: skip


def pages(gwi: Gwi) -> list[Page]:
    views, live = WorkViews(gwi), ("gwi",)
    return [
        Page(path="", title="Queue", template="queue.html", data=views.queue, live=live),
        Page(
            path="/items/{item_id}", title="Work item", template="item.html", data=views.item, live=live,
            nav=False,
        ),
        Page(path="/signals", title="Signals", template="signals.html", data=views.signals, live=live),
    ]  # fmt: skip
