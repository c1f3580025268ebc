"""A sliding window: at most n in any period for each key, all of them at once if they come so.

`SharedRateLimit` spaces calls out, for callers that wait their turn. A window counts attempts, for callers
that are refused, such as sign-ins: ten at once are fine, the eleventh waits until the first is a period old.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.errors import TooManyRequestsError
from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, Retention, document
from holdfast.store import Store, Transaction, delete, put

ATTEMPTS: Final = 50


class WindowQuota(msgspec.Struct, frozen=True, kw_only=True):
    """At most `count` in any `period_s` for each key. Quotas of the same `name` are one.

    Example: `WindowQuota(name="hackernews sign-in", count=10, period_s=900)`
    """

    name: str
    count: Annotated[int, Meta(ge=1, le=1_000)]
    period_s: Annotated[float, Meta(gt=0, le=86_400)]


@document(
    "holdfast_rate_windows/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    # The longest period: what is older counts for nothing.
    retention=Retention("last_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class RateWindow(Document, rename="camel"):
    """The attempts under one key that still count. The id is a hash of quota and key, such as an address."""

    id: str
    tenant_id: str = NO_TENANT
    taken_at: list[datetime] = []
    last_at: datetime


def counted(taken_at: Sequence[datetime], quota: WindowQuota, *, now: datetime) -> list[datetime]:
    """The attempts within the last period, oldest first. Pure."""
    period = timedelta(seconds=quota.period_s)
    # One from the far future was left by a clock that has been set back since; it must lock nobody out.
    return sorted(at for at in taken_at if now - period < at < now + period)


class SlidingWindow:
    """Admits attempts in all processes together.

    Example: `await SlidingWindow(store, quota).admit("203.0.113.7")`
    """

    def __init__(self, store: Store, quota: WindowQuota) -> None:
        self._store, self._clock, self._quota = store.privileged(), store.clock, quota

    async def admit(self, key: str, transaction: Transaction | None = None) -> datetime:
        """Count an attempt before it is made, in the caller's transaction if given; return when it was made.

        Raises TooManyRequestsError where the quota is used up.
        """
        if transaction is None:
            return await self._store.transact(lambda own: self.admit(key, own), attempts=ATTEMPTS)
        quota, now = self._quota, self._clock.now()
        taken = await self._taken(key, transaction, now)
        if len(taken) >= quota.count:
            wait_s = (taken[0] - now).total_seconds() + quota.period_s
            raise TooManyRequestsError(
                f"at most {quota.count} in {quota.period_s:g} s; wait {wait_s:.0f} s and try again",
                after_s=wait_s,
            )
        transaction.write(put(RateWindow(id=self.id_of(key), taken_at=[*taken, now], last_at=now)))
        return now

    async def give_back(self, key: str, taken_at: datetime) -> None:
        """Count one attempt no more, such as a sign-in that succeeded; those of others still count."""

        async def act(tx: Transaction) -> None:
            taken = await self._taken(key, tx, self._clock.now())
            if taken_at in taken:
                taken.remove(taken_at)
                tx.write(put(RateWindow(id=self.id_of(key), taken_at=taken, last_at=taken_at)))

        await self._store.transact(act, attempts=ATTEMPTS)

    async def clear(self, key: str) -> None:
        """Forget every attempt under a key."""
        await self._store.commit(delete(RateWindow, self.id_of(key)))

    async def _taken(self, key: str, transaction: Transaction, now: datetime) -> list[datetime]:
        stored = await transaction.get(RateWindow, self.id_of(key))
        return counted(stored.doc.taken_at if stored else (), self._quota, now=now)

    def id_of(self, key: str) -> str:
        """The id of a key's window: a hash, so that what was typed is not stored."""
        return hashlib.sha256(f"{self._quota.name}\0{key}".encode(errors="surrogatepass")).hexdigest()
