"""What was sent to the RMS, each with its attempts; and what was given up, with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, get_args

from holdfast.errors import NotFoundError
from holdfast.service import Page, PageRequest
from holdfast.services.renewals.models import DeadLetterRow, DeliveryState, Property, Resident, RmsEndpoint
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.deliveries import STATUSES, Wait
from holdfast.services.renewals.views.property_header import ON_THE_WAY, Heading, choices, heading

ROWS: Final = 50
_ALL: Final = "all"
_NOT_YET: Final = "undelivered"
# What people choose by; whatever else there is can be asked for by the address.
_CHOSEN_BY: Final = (_ALL, _NOT_YET, "delivered", "failed", "dlq")
_WAITS: Final = (_ALL, *get_args(Wait))


class RmsDeliveryPages:
    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals

    async def of_property(self, ask: PageRequest) -> Mapping[str, Any]:
        head = await heading(self._renewals, ask.tenant_id, ask.path["property_id"])
        state = ask.choice("status", (_ALL, _NOT_YET, *STATUSES), default=_ALL)
        wanted: tuple[Any, ...] = {_ALL: (), _NOT_YET: ON_THE_WAY}.get(state, (state,))
        found = self._renewals.deliveries(ask.tenant_id)
        rows, after = await found.find(head.property.id, statuses=wanted, limit=ROWS, cursor=ask.cursor)
        return {
            "title": f"Deliveries of {head.property.name}", "head": head, "rows": rows, "after": after,
            "state": state, "states": _CHOSEN_BY, "counts": await found.counts(head.property.id),
            "names": await self._names(ask, [one.resident_id for one in rows]),
            "stopped": {head.property.id} if head.endpoint and head.endpoint.status != "active" else set(),
        }  # fmt: skip

    async def waiting(self, ask: PageRequest) -> Mapping[str, Any]:
        """What all properties still have to be told of; or the delivery of the event somebody looks for."""
        wait, wanted = ask.choice("waiting", _WAITS, default=_ALL), ask.text("q", characters_max=1_000)
        store, found = self._renewals.store(ask.tenant_id), self._renewals.deliveries(ask.tenant_id)
        if wanted:
            rows, after = await found.of_event(wanted), None
        else:
            chosen: Any = None if wait == _ALL else wait
            rows, after = await found.waiting(chosen, limit=ROWS, cursor=ask.cursor)
        ids = list(dict.fromkeys(one.property_id for one in rows))
        due, later, names, endpoints, houses = await asyncio.gather(
            found.count_waiting("due"),
            found.count_waiting("later"),
            self._names(ask, [one.resident_id for one in rows]),
            store.get_many(RmsEndpoint, ids),
            self._houses(ask, ids),
        )
        return {
            "rows": rows, "after": after, "wait": wait, "wanted": wanted, "names": names,
            "counts": {_ALL: due + later, "due": due, "later": later},
            "stopped": {one.doc.id for one in endpoints if one is not None and one.doc.status != "active"},
            "houses": houses,
        }  # fmt: skip

    async def _names(self, ask: PageRequest, resident_ids: list[str]) -> dict[str, str]:
        ids = list(dict.fromkeys(resident_ids))
        found = await self._renewals.store(ask.tenant_id).get_many(Resident, ids)
        return {one.doc.id: one.doc.name for one in found if one is not None}

    async def _houses(self, ask: PageRequest, property_ids: list[str]) -> dict[str, str]:
        ids = list(dict.fromkeys(property_ids))
        found = await self._renewals.store(ask.tenant_id).get_many(Property, ids)
        return {one.doc.id: one.doc.name for one in found if one is not None}

    async def one(self, ask: PageRequest) -> Mapping[str, Any]:
        store = self._renewals.store(ask.tenant_id)
        delivery = await self._renewals.deliveries(ask.tenant_id).get(ask.path["delivery_id"])
        letter = await store.get(DeadLetterRow, delivery.id)
        names = await self._names(ask, [delivery.resident_id])
        name = names.get(delivery.resident_id, delivery.resident_id)
        return {
            "title": f"Event about {name}", "name": name, "delivery": delivery,
            "letter": None if letter is None else letter.doc,
            "head": await self._head(ask, delivery.property_id),
        }  # fmt: skip

    async def _head(self, ask: PageRequest, property_id: str) -> Heading | None:
        """None for a property that is gone: what it told the RMS stays on record."""
        try:
            return await heading(self._renewals, ask.tenant_id, property_id)
        except NotFoundError:
            return None

    async def dead_letters(self, ask: PageRequest) -> Mapping[str, Any]:
        resolved, property_id = ask.choice("resolved", ("no", "yes"), default="no"), ask.text("property")
        head = await heading(self._renewals, ask.tenant_id, property_id) if property_id else None
        rows, after = await self._renewals.deliveries(ask.tenant_id).dead_letters(
            property_id or None, resolved=resolved == "yes", limit=ROWS, cursor=ask.cursor
        )
        return {
            "rows": rows, "after": after, "resolved": resolved, "property_id": property_id, "head": head,
            "names": await self._houses(ask, [one.property_id for one in rows]),
            "properties": await choices(self._renewals.store(ask.tenant_id), head),
            "about": await self._about(ask, [one.id for one in rows]),
        }  # fmt: skip

    async def _about(self, ask: PageRequest, delivery_ids: list[str]) -> dict[str, str]:
        """For each delivery the name of the resident it is about."""
        found = await self._renewals.store(ask.tenant_id).get_many(DeliveryState, delivery_ids)
        residents = {one.doc.id: one.doc.resident_id for one in found if one is not None}
        names = await self._names(ask, list(residents.values()))
        return {id: names.get(resident_id, resident_id) for id, resident_id in residents.items()}


def pages(renewals: Renewals) -> list[Page]:
    shown, live = RmsDeliveryPages(renewals), ("renewals",)
    return [
        Page(path="/deliveries", title="On the way", template="waiting.html", data=shown.waiting, live=live),
        Page(
            path="/dead-letters", title="Dead letters", template="dead_letters.html",
            data=shown.dead_letters, live=live,
        ),
        Page(
            path="/properties/{property_id}/deliveries", title="Deliveries", template="deliveries.html",
            data=shown.of_property, live=live, nav=False,
        ),
        Page(
            path="/deliveries/{delivery_id}", title="Delivery", template="delivery.html", data=shown.one,
            live=live, nav=False,
        ),
    ]  # fmt: skip
