"""A process that acquires turns: `python -m tests.kit.rate_limit_worker URL COUNT PERIOD_S ACQUIRED`."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop

from holdfast.app import open_store
from holdfast.kit.rate_limit import RateLimitDocument, RateQuota, SharedRateLimit


async def main(url: str, quota: RateQuota, acquired: int) -> None:
    store = await open_store(url, [RateLimitDocument])
    granted: list[int] = []

    class Observed(SharedRateLimit):
        async def _next_turn(self, key: str, *, first: bool) -> int:
            granted.append(await super()._next_turn(key, first=first))
            return granted[-1]

    limit = Observed(store, "shared", quota)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def acquire() -> int:
        await limit.acquire()
        # The time since boot is the same for all processes on a machine.
        return time.monotonic_ns() // 1_000

    taken = await asyncio.gather(*(acquire() for _ in range(acquired)))
    print(json.dumps({"taken": taken, "granted": granted}))
    await store.close()


if __name__ == "__main__":
    quota = RateQuota(count=int(sys.argv[2]), period_s=float(sys.argv[3]))
    uvloop.run(main(sys.argv[1], quota, int(sys.argv[4])))
