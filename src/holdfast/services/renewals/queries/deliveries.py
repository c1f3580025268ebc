"""Deliveries of events to the RMS, by property, score and resident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.services.renewals.models import DeadLetterRow, DeliveryState
from holdfast.services.renewals.models.deliveries import RmsDeliveryStatus
from holdfast.store import Query, QueryPage, Store

IN_FLIGHT: Final[tuple[RmsDeliveryStatus, ...]] = ("pending", "sending", "failed")


class RmsDeliveries:
    """Deliveries of one portfolio; the platform's `Deliveries` acts on them.

    Example: `page = await RmsDeliveries(store).page("property-7", ["dlq"])`
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def page(
        self,
        property_id: str,
        statuses: Sequence[RmsDeliveryStatus] = (),
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> QueryPage[DeliveryState]:
        """A property's deliveries, newest first."""
        query = Query(DeliveryState).where("endpoint_id", "==", property_id)
        if statuses:
            query = query.where("status", "in", list(statuses))
        return await self._store.query(query.order_by("-created_at").limit(limit).after(cursor))

    async def get_many(self, ids: Sequence[str]) -> list[DeliveryState | None]:
        """The delivery with each id, or None where there is none."""
        return [None if one is None else one.doc for one in await self._store.get_many(DeliveryState, ids)]

    async def of_resident(self, resident_id: str, *, limit: int = 20) -> list[DeliveryState]:
        """Deliveries about a resident, newest first."""
        query = Query(DeliveryState).where("resident_id", "==", resident_id).order_by("-created_at")
        return list((await self._store.query(query.limit(limit))).docs)

    async def count_in_flight(self, property_id: str) -> int:
        """How many events of a property are being sent or wait to be."""
        query = Query(DeliveryState).where("endpoint_id", "==", property_id)
        return await self._store.count(query.where("status", "in", list(IN_FLIGHT)).order_by("-created_at"))

    async def count_dead(self, property_id: str | None = None) -> int:
        """How many unresolved dead letters a property has, or all have."""
        query = Query(DeadLetterRow).where("resolved", "==", False)
        if property_id is not None:
            query = query.where("endpoint_id", "==", property_id)
        return await self._store.count(query.order_by("-died_at"))
