"""Shares of a sender's connections, so that receivers which hang or are slow leave some to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from holdfast.net.pool import PoolLimits
from holdfast.net.port import SendFailure

# What receivers in doubt may hold at once.
DOUBTED_SHARE: Final = 0.8
# What those and the slow ones may hold together; the rest is for receivers that answer promptly.
SLOW_SHARE: Final = 0.9
HOSTS_MAX: Final = 10_000


class _Share:
    __slots__ = ("doubted", "slow")

    def __init__(self, connections: int) -> None:
        self.doubted = asyncio.Semaphore(max(1, int(connections * DOUBTED_SHARE)))
        self.slow = asyncio.Semaphore(max(1, int(connections * SLOW_SHARE)))


class ConnectionShares:
    """Places among the connections to each host and among all; made once for each sender.

    Example: `async with shares.place("hooks.example:443", in_doubt=True, within_s=5.0): ...`
    """

    def __init__(self, limits: PoolLimits | None = None) -> None:
        self._limits = limits or PoolLimits()
        self._total = _Share(self._limits.total_max)
        self._hosts: dict[str, _Share] = {}

    @asynccontextmanager
    async def place(self, host: str, *, in_doubt: bool, within_s: float) -> AsyncIterator[None]:
        """Hold a place while the block lasts; `SendFailure` when none becomes free within `within_s`.

        A receiver in doubt takes a place among the slow ones besides.
        """
        async with AsyncExitStack() as places:
            try:
                async with asyncio.timeout(within_s):
                    for share in (self._share(host), self._total):
                        if in_doubt:
                            await places.enter_async_context(share.doubted)
                        await places.enter_async_context(share.slow)
            except TimeoutError:
                raise SendFailure("timeout", "no connection became free within the time limit") from None
            yield

    def _share(self, host: str) -> _Share:
        share = self._hosts.get(host)
        if share is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts.clear()
            share = self._hosts[host] = _Share(self._limits.per_host_max)
        return share
