"""What goes out: lists by state and endpoint, and each delivery with its payload and every attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import BadIdError, NotFoundError
from holdfast.kit.outbox import DeadLetter, Deliveries, Delivery, Endpoint, Selection
from holdfast.kit.outbox.deliveries import REPLAYABLE
from holdfast.kit.outbox.models import EVERY_STATUS, UNDELIVERED
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.store import Query

ROWS: Final = 50
_NOT_YET: Final = "undelivered"
_ALL: Final = "all"


class DeliveryPages:
    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store

    async def listed(self, ask: PageRequest) -> Mapping[str, Any]:
        state = ask.choice("status", (_NOT_YET, _ALL, *EVERY_STATUS), default=_NOT_YET)
        endpoint, wanted = ask.text("endpoint"), ask.text("q", characters_max=1_000)
        rows, after = await self._rows(ask, state, endpoint, wanted)
        page = await self._store.tenant(ask.tenant_id).query(
            Query(Endpoint).order_by("-created_at").limit(100)
        )
        return {
            "state": state, "states": (_NOT_YET, *EVERY_STATUS, _ALL), "endpoint": endpoint, "wanted": wanted,
            "rows": rows, "after": after, "endpoints": page.docs,
        }  # fmt: skip

    async def _rows(
        self, ask: PageRequest, state: str, endpoint: str, wanted: str
    ) -> tuple[Sequence[Delivery], str | None]:
        if wanted:
            return await self._named(ask, wanted), None
        some = {_NOT_YET: UNDELIVERED, _ALL: EVERY_STATUS}.get(state, (state,))
        selection = Selection(statuses=some, endpoint_id=endpoint or None)  # type: ignore[arg-type]
        page = await Deliveries(self._store.tenant(ask.tenant_id)).find(
            selection, limit=ROWS, cursor=ask.cursor
        )
        return page.docs, page.cursor

    async def _named(self, ask: PageRequest, wanted: str) -> Sequence[Delivery]:
        store = self._store.tenant(ask.tenant_id)
        try:
            found = await store.get(Delivery, wanted)
        except BadIdError:
            return []
        return [found.doc] if found else await Deliveries(store).of_event(wanted)

    async def one(self, ask: PageRequest) -> Mapping[str, Any]:
        store, id = self._store.tenant(ask.tenant_id), ask.path["delivery_id"]
        found = await store.get(Delivery, id)
        if found is None:
            raise NotFoundError(f"There is no delivery {id!r} here. It may belong to another tenant.")
        endpoint, letter = await store.get(Endpoint, found.doc.endpoint_id), await store.get(DeadLetter, id)
        return {
            "title": f"Delivery {id}", "delivery": found.doc, "endpoint": endpoint.doc if endpoint else None,
            "letter": letter.doc if letter else None, "replayable": found.doc.status in REPLAYABLE,
        }  # fmt: skip


def pages(runtime: Runtime) -> list[Page]:
    shown, live = DeliveryPages(runtime), ("deliveries",)
    return [
        Page(
            path="/deliveries", title="Deliveries", template="deliveries.html", data=shown.listed, live=live
        ),
        Page(
            path="/deliveries/{delivery_id}", title="Delivery", template="delivery.html", data=shown.one,
            live=live, nav=False,
        ),
    ]  # fmt: skip
