"""A run's residents in the order their leases end: written down when the run has scored everybody.

An index by days would be written to all over by every page of scores, and cost as much as all the rest of
them; in order, once, it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import BadCursorError
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.models import RiskScore, RunOrder
from holdfast.store import QueryPage, Store, Write, put
from holdfast.store.cursors import decode_cursor, encode_cursor, fingerprint

STRETCH: Final = 500
# In place of days, for who lives from month to month: at any time, so before all others.
ANY_TIME: Final = -(10**9)
# In how many days whose lease ends, and their tier.
Ending = tuple[int, str, Tier]


def ending(days: int | None, resident_id: str, tier: Tier) -> Ending:
    return ANY_TIME if days is None else days, resident_id, tier


class OrderPosition(NamedTuple):
    """Where a page begins: in which stretch, at which of its residents."""

    number: int = 0
    offset: int = 0


class LeaseEndOrder:
    """One run's residents, the soonest to end first.

    Example: `page = await LeaseEndOrder(store, "property-7", run.calculated_at).page(["high"], limit=50)`
    """

    def __init__(self, store: Store, property_id: str, calculated_at: datetime) -> None:
        self._store, self._property_id, self._calculated_at = store, property_id, calculated_at
        self._at: str = msgspec.to_builtins(calculated_at)

    def writes(self, endings: Iterable[Ending]) -> Iterator[Write]:
        """What keeps the order; writing it again changes nothing."""
        # By days, then by id; in this way, because they mostly come by id, and whole numbers sort fastest.
        ordered = sorted(sorted(endings, key=itemgetter(1)), key=itemgetter(0))
        for number, start in enumerate(range(0, len(ordered), STRETCH)):
            ends, residents, tiers = map(list, zip(*ordered[start : start + STRETCH], strict=True))
            days = [None if one == ANY_TIME else one for one in ends]
            yield put(RunOrder(
                tenant_id=self._store.tenant_id or "-", property_id=self._property_id,
                calculated_at=self._calculated_at, number=number, days=days, residents=residents, tiers=tiers,
            ))  # fmt: skip

    async def page(
        self, tiers: Sequence[Tier], *, limit: int, cursor: str | None = None
    ) -> QueryPage[RiskScore]:
        """The scores of those in these tiers, by documents' ids alone."""
        residents, after = list[str](), None
        async for resident, place in self._from(self._place(cursor, tiers), tiers):
            residents.append(resident)
            if len(residents) == limit:
                after = encode_cursor(self._mark(tiers), place)
                break
        found = await self._store.get_many(RiskScore, [f"{self._at}_{id}" for id in residents])
        return QueryPage([one for one in found if one is not None], after)

    async def _from(
        self, place: OrderPosition, tiers: Sequence[Tier]
    ) -> AsyncIterator[tuple[str, OrderPosition]]:
        """Residents of these tiers, each with the place behind them."""
        number, offset = place
        while (found := await self._store.get(RunOrder, self._id(number))) is not None:
            order = found.doc
            for at in range(offset, len(order.residents)):
                if order.tiers[at] in tiers:
                    yield order.residents[at], OrderPosition(number, at + 1)
            number, offset = number + 1, 0

    def _id(self, number: int) -> str:
        return f"{self._at}_{self._property_id}_{number}"

    def _mark(self, tiers: Sequence[Tier]) -> bytes:
        return fingerprint((self._store.tenant_id, self._at, self._property_id, sorted(set(tiers))))

    def _place(self, cursor: str | None, tiers: Sequence[Tier]) -> OrderPosition:
        if cursor is None:
            return OrderPosition()
        place = decode_cursor(cursor, self._mark(tiers), type=OrderPosition)
        if min(place) < 0:
            raise BadCursorError("this cursor was tampered with")
        return place
