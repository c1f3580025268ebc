"""A lease held by this process."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.clock import Clock
from holdfast.errors import LeaseLostError
from holdfast.kit.leases.models import LeaseFields
from holdfast.store.commit import Fence, Write, check


@dataclass(eq=False)
class Lease:
    """The right to act under a name, until it is released, expires or is lost.

    Put `guard()` first into every commit made under the lease: then the store refuses a write that arrives
    after a takeover.

    Example: `await store.commit(lease.guard(), put(report))`
    """

    name: str
    lock_id: str
    owner: str
    fence: int
    ttl_s: float
    kind: type[LeaseFields] = field(repr=False)
    clock: Clock = field(repr=False)
    good_until_s: float = field(repr=False)
    lost: bool = False

    @property
    def remaining_s(self) -> float:
        """Seconds during which nobody else can have taken it, by this process's monotonic clock."""
        return 0.0 if self.lost else max(0.0, self.good_until_s - self.clock.monotonic())

    def guard(self) -> Write:
        """A write that changes nothing and fails the commit once the lease is another's."""
        return check(self.kind, self.lock_id, expect=Fence(self.fence))

    def raise_if_lost(self) -> None:
        """Raise before a side effect outside the store that only the holder may have."""
        if self.remaining_s <= 0:
            raise LeaseLostError(f"the lease {self.name!r} expired or was taken over")
