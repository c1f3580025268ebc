"""A lease held by this process."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.clock import Clock
from holdfast.errors import LeaseLostError
from holdfast.kit.leases.models import LeaseFields
from holdfast.store.commit import Fence, Write, check


@dataclass(eq=False)
class Lease:
    """The right to act under a name, until it is released, runs out or is lost.

    Put `guard()` first into every commit made under the lease: then the store itself refuses a write
    that arrives after somebody else took over, and says why.

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
        """How long nobody else can have taken it, by this process's own monotonic time."""
        return 0.0 if self.lost else max(0.0, self.good_until_s - self.clock.monotonic())

    def guard(self) -> Write:
        """A write that changes nothing and lets the commit fail once the lease is another's."""
        return check(self.kind, self.lock_id, expect=Fence(self.fence))

    def raise_if_lost(self) -> None:
        """Raise before starting something outside the store that only a holder may do."""
        if self.remaining_s <= 0:
            raise LeaseLostError(f"the lease {self.name!r} ran out or is another's")
