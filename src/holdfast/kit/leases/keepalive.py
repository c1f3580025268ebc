"""Keeps a lease alive for a block: renews it in the background, cancels the block when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.errors import LeaseLostError, RetryLaterError
from holdfast.kit.leases.lease import Lease
from holdfast.kit.worker_loop import wait_first

if TYPE_CHECKING:
    from holdfast.kit.leases.leases import Leases


class HeldBlock:
    """The context manager of `Leases.hold`; entered once."""

    def __init__(self, leases: Leases, acquire: Callable[[], Awaitable[Lease | None]], *, name: str) -> None:
        self._leases = leases
        self._acquire = acquire
        self._name = name
        self._lease: Lease | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._body: asyncio.Task[object] | None = None
        self._cancelling_before = 0
        self._cancelled_body = False

    async def __aenter__(self) -> Lease:
        lease = await self._acquire()
        if lease is None:
            raise RetryLaterError(f"the lease {self._name!r} is held by another")
        self._lease = lease
        self._body = asyncio.current_task()
        assert self._body is not None
        self._cancelling_before = self._body.cancelling()
        self._renewal = asyncio.create_task(self._renew(lease))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        assert self._body is not None
        await self._stop_renewal()
        lost = self._lease.lost
        if not lost:
            # If the store is unreachable, the lease expires by itself; the block's work is done.
            with contextlib.suppress(RetryLaterError):
                await self._leases.release(self._lease)
        # As asyncio.timeout does: our own cancellation ends here, anybody else's propagates.
        own_cancel = self._cancelled_body and self._body.uncancel() <= self._cancelling_before
        if lost and (kind is None or (own_cancel and kind is asyncio.CancelledError)):
            raise LeaseLostError(f"the lease {self._name!r} was lost") from fault

    async def _stop_renewal(self) -> None:
        assert self._renewal is not None
        self._renewal.cancel()
        try:
            await asyncio.wait({self._renewal})
        except asyncio.CancelledError:
            if not self._cancelled_body:
                raise

    async def _renew(self, lease: Lease) -> None:
        try:
            await keep_alive(self._leases, lease, self._leases.clock)
        except LeaseLostError:
            lease.lost = True
            assert self._body is not None
            self._cancelled_body = True
            self._body.cancel()


async def keep_alive(leases: Leases, lease: Lease, clock: Clock) -> None:
    """Renew at every third of the lease until cancelled; raises `LeaseLostError` once it may be another's."""
    pause_s = lease.ttl_s / 3
    while True:
        await clock.sleep(min(pause_s, lease.remaining_s))
        lease.raise_if_lost()
        pause_s = lease.ttl_s / 3
        # A renewal that hangs must not outlive the lease: by then another process may hold it.
        with contextlib.suppress(RetryLaterError):
            await wait_first(leases.renew(lease), clock.sleep(lease.remaining_s))
            continue
        pause_s = lease.ttl_s / 12
