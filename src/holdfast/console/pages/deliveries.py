"""Deliveries of each outbox by state and endpoint, and each with its payload and every attempt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import NotFoundError
from holdfast.kit.outbox import Deliveries, Delivery
from holdfast.kit.outbox.attempt_record import recorded_url
from holdfast.kit.outbox.circuits import hold_reasons
from holdfast.kit.outbox.deliveries import CANCELLABLE, REPLAYABLE
from holdfast.kit.outbox.models import EVERY_STATUS, UNDELIVERED, every_status
from holdfast.operations import attempts, deliveries, endpoints
from holdfast.operations.deliveries import DeliveryPage
from holdfast.operations.outboxes import outbox_named, own_fields
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
ENDPOINTS_OFFERED: Final = 100
_UNDELIVERED: Final = "undelivered"
_ALL: Final = "all"


async def outbox_choice(runtime: Runtime, ask: PageRequest) -> dict[str, Any]:
    """The outbox that a list is about, the others, and the endpoints to filter by."""
    outbox, endpoint = ask.text("outbox") or KIT_PART, ask.text("endpoint")
    page = await endpoints.list_endpoints(runtime, ask.tenant_id, outbox, limit=ENDPOINTS_OFFERED)
    offered = [one.id for one in page.items]
    return {
        "outbox": outbox, "outboxes": list(runtime.outboxes), "endpoint": endpoint,
        "endpoints": [endpoint, *offered] if endpoint and endpoint not in offered else offered,
    }  # fmt: skip


def _times(ask: PageRequest) -> dict[str, str]:
    """The filter by creation time as it was given, for links to other parts of the same list."""
    return {name: value for name in ("since", "until") if (value := ask.text(name))}


class DeliveryPages:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def listed(self, ask: PageRequest) -> Mapping[str, Any]:
        wanted, choice = ask.text("q", characters_max=1_000), await outbox_choice(self._runtime, ask)
        words = every_status(outbox_named(self._runtime, choice["outbox"]).models)
        state = ask.choice("status", (_UNDELIVERED, _ALL, *words), default=_UNDELIVERED)
        page = await self._page(ask, state, wanted=wanted, choice=choice)
        return {
            "state": state, "states": (_UNDELIVERED, *words, _ALL), "wanted": wanted,
            "rows": page.items, "after": page.cursor, "since": ask.moment("since"),
            "until": ask.moment("until"), "times": _times(ask), **choice,
        }  # fmt: skip

    async def _page(
        self, ask: PageRequest, state: str, *, wanted: str, choice: Mapping[str, Any]
    ) -> DeliveryPage:
        if wanted:
            found = await deliveries.find_by_id(self._runtime, ask.tenant_id, choice["outbox"], wanted)
            return DeliveryPage(found, None)
        some = {_UNDELIVERED: UNDELIVERED, _ALL: EVERY_STATUS}.get(state, (state,))
        return await deliveries.list_deliveries(
            self._runtime, ask.tenant_id, choice["outbox"], statuses=some,
            endpoint_id=choice["endpoint"] or None, since=ask.moment("since"), until=ask.moment("until"),
            limit=ROWS, cursor=ask.cursor,
        )  # fmt: skip

    async def one(self, ask: PageRequest) -> Mapping[str, Any]:
        outbox, id = ask.path["outbox"], ask.path["delivery_id"]
        models, store = outbox_named(self._runtime, outbox).models, self._runtime.store_of(ask.tenant_id)
        found = await store.get(models.delivery, id)
        if found is None:
            raise NotFoundError(f"There is no delivery {id!r} here. It may belong to another tenant.")
        delivery = found.doc
        endpoint = await store.get(models.endpoint, delivery.endpoint_id)
        letter = await store.get(models.dead_letter, id)
        holds = await hold_reasons(store, [delivery], models=models, now=self._runtime.clock.now())
        return {
            "title": f"Delivery {id}", "outbox": outbox, "delivery": delivery,
            "tenant_id": delivery.tenant_id,
            "endpoint": endpoint.doc if endpoint else None,
            "url": recorded_url(endpoint.doc.url) if endpoint else "",
            "hold": holds.get(id, ""),
            "letter": letter.doc if letter else None,
            "replayable": delivery.state in REPLAYABLE, "cancellable": delivery.state in CANCELLABLE,
            "attempts": await Deliveries(store, models=models).attempts(delivery),
            "about": own_fields(delivery, Delivery),
        }  # fmt: skip

    async def attempt(self, ask: PageRequest) -> Mapping[str, Any]:
        number, path = ask.path["number"], ask.path
        if not re.fullmatch(r"[1-9][0-9]{0,5}", number):
            raise NotFoundError(f"Attempts have numbers from 1, not {number[:20]!r}.")
        shown = await attempts.get_attempt(
            self._runtime, ask.tenant_id, path["outbox"], path["delivery_id"], number=int(number)
        )
        title = f"Attempt {number} of {shown.count}"
        return {"title": title, "tenant_id": shown.tenant_id, "shown": shown}


def pages(runtime: Runtime) -> list[Page]:
    shown, live = DeliveryPages(runtime), ("deliveries",)
    return [
        Page(
            path="/deliveries", title="Deliveries", template="deliveries.html", data=shown.listed, live=live,
            all_tenants=True,
        ),
        Page(
            path="/deliveries/{outbox}/{delivery_id}", title="Delivery", template="delivery.html",
            data=shown.one, live=live, nav=False, all_tenants=True,
        ),
        Page(
            path="/deliveries/{outbox}/{delivery_id}/attempts/{number}", title="Attempt",
            template="attempt.html", data=shown.attempt, nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
