"""Locks across processes: a time limit, renewal, and a fencing number that the store checks."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Final

from holdfast.clock import from_us
from holdfast.errors import BadQueryError, ConflictError, LeaseLostError
from holdfast.kit import NO_TENANT
from holdfast.kit.leases.decision import Free, HeldLease, Sighting, decide, update_sighting
from holdfast.kit.leases.keepalive import HeldBlock
from holdfast.kit.leases.lease import Lease
from holdfast.kit.leases.models import LEASE_CLAIM, LeaseDocument, LeaseFields, lock_id_of
from holdfast.kit.model_checks import check_model
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.store.commit import Fence, Snapshot, Write, create, patch, put
from holdfast.store.store import Store

WAIT_S_MAX: Final = 5.0
SIGHTINGS_MAX: Final = 10_000
ATTEMPTS: Final = 3


class Leases:
    """Takes, renews and releases leases of one tenant, or of none.

    A lease's guard joins commits of handles that reach the lease's tenant. Safety rests on the guard alone;
    time only decides when a takeover is tried.

    Example:
        leases = Leases(store.tenant("acme"))
        async with leases.hold("nightly-report", ttl_s=30, owner="worker-1") as lease:
            await acme.commit(lease.guard(), put(report))
    """

    def __init__(self, store: Store, *, kind: type[LeaseFields] = LeaseDocument) -> None:
        check_model(kind, LeaseFields, path=("lock_id",), claim=LEASE_CLAIM)
        self._tenant_id = store.tenant_id or NO_TENANT
        self._store = store.tenant(self._tenant_id)
        self.clock = store.clock
        self._kind = kind
        self._sightings: dict[str, Sighting] = {}
        self._start_us = self.clock.now_us() - round(self.clock.monotonic() * 1e6)

    async def acquire(
        self, name: str, *, ttl_s: float = 60.0, owner: str, purpose: str = "", wait_s: float = 0.0
    ) -> Lease | None:
        """Acquire the lease, or return None when another still holds it after `wait_s`. Not re-entrant."""
        if ttl_s <= 0:
            raise BadQueryError("a lease needs ttl_s > 0")
        deadline_s = self.clock.monotonic() + wait_s
        subscription = self._store.watch(self._kind) if wait_s > 0 else None
        try:
            while True:
                result = await self._try_acquire(name, ttl_s=ttl_s, owner=owner, purpose=purpose)
                left_s = deadline_s - self.clock.monotonic()
                if isinstance(result, Lease) or left_s <= 0:
                    return result if isinstance(result, Lease) else None
                # Jittered, so that waiters don't all ask at the instant it ends.
                pause_s = min(result.after_s, left_s, WAIT_S_MAX) + random.uniform(0.0, 0.02)
                await wait_for_wake(self.clock, pause_s, wake=subscription)
        finally:
            if subscription is not None:
                subscription.close()

    def hold(
        self, name: str, *, ttl_s: float = 60.0, owner: str, purpose: str = "", wait_s: float = 0.0
    ) -> HeldBlock:
        """Hold the lease for an `async with` block, renewed at every third of its length.

        When it is lost, the body is cancelled and `LeaseLostError` raised; `RetryLaterError` when it is not
        free within `wait_s`.
        """
        return HeldBlock(
            self,
            lambda: self.acquire(name, ttl_s=ttl_s, owner=owner, purpose=purpose, wait_s=wait_s),
            name=name,
        )

    async def renew(self, lease: Lease) -> None:
        """Restart its time; raises `LeaseLostError` when another took it."""
        sent_s = self.clock.monotonic()
        changes = {"expires_at": self._expiry(lease.ttl_s), "held_by": lease.owner}
        try:
            await self._store.commit(
                patch(self._kind, lease.lock_id, changes=changes, expect=Fence(lease.fence))
            )
        except LeaseLostError:
            lease.lost = True
            raise
        lease.good_until_s = sent_s + lease.ttl_s

    async def release(self, lease: Lease) -> bool:
        """Release it now; False when another has it already. Its guard is refused from here on."""
        lease.lost = True
        try:
            await self._store.commit(*self.writes_release(lease))
        except LeaseLostError:
            return False
        return True

    def writes_release(self, lease: Lease) -> list[Write]:
        """The release as a write, for the commit of the lease's last work (in place of the guard)."""
        changes = {"expires_at": self.clock.now(), "held_by": "", "fence": lease.fence + 1}
        return [patch(self._kind, lease.lock_id, changes=changes, expect=Fence(lease.fence))]

    async def get(self, name: str) -> LeaseFields | None:
        """The stored lease, for people who ask who holds it."""
        snapshot = await self._store.get(self._kind, self._lock_id(name))
        return None if snapshot is None else snapshot.doc

    async def _try_acquire(self, name: str, *, ttl_s: float, owner: str, purpose: str) -> Lease | HeldLease:
        for _ in range(ATTEMPTS):
            snapshot = await self._store.get(self._kind, self._lock_id(name))
            verdict = self._decide(name, snapshot)
            if isinstance(verdict, HeldLease):
                return verdict
            sent_s = self.clock.monotonic()
            fields = self._kind(
                lock_id=self._lock_id(name), tenant_id=self._tenant_id, held_by=owner,
                acquired_at=self.clock.now(), expires_at=self._expiry(ttl_s), ttl_s=ttl_s, purpose=purpose,
                fence=verdict.fence,
            )  # fmt: skip
            try:
                await self._store.commit(
                    create(fields) if snapshot is None else put(fields, snapshot.unchanged)
                )
            except ConflictError:
                continue
            self._sightings.pop(name, None)
            return Lease(
                name, fields.lock_id, owner, verdict.fence, ttl_s, self._kind, self.clock, sent_s + ttl_s
            )
        return HeldLease(0.0)

    def _decide(self, name: str, snapshot: Snapshot[LeaseFields] | None) -> Free | HeldLease:
        monotonic_s = self.clock.monotonic()
        stored, sighting = (None if snapshot is None else snapshot.doc), self._sightings.get(name)
        verdict = decide(stored, now=self._steady_now(), monotonic_s=monotonic_s, sighting=sighting)
        if stored is not None and isinstance(verdict, HeldLease):
            self._remember(name, update_sighting(stored, sighting, monotonic_s))
        return verdict

    def _remember(self, name: str, sighting: Sighting) -> None:
        self._sightings[name] = sighting
        if len(self._sightings) > SIGHTINGS_MAX:
            del self._sightings[next(iter(self._sightings))]

    def _steady_now(self) -> datetime:
        """The present, unmoved by a clock set forward since the start: no lease looks older than it is."""
        steady_us = self._start_us + round(self.clock.monotonic() * 1e6)
        return from_us(min(self.clock.now_us(), steady_us))

    def _lock_id(self, name: str) -> str:
        return lock_id_of(self._tenant_id, name)

    def _expiry(self, ttl_s: float) -> datetime:
        return self.clock.now() + timedelta(seconds=ttl_s)
