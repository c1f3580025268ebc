"""Signs a visitor in and waits to be killed: `python -m tests.kit.visitor_process URL KEYS`."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from holdfast.app import open_store
from holdfast.kit.access import VisitorSession, VisitorSessions
from holdfast.kit.rate_limit import RateWindow, SlidingWindow, WindowQuota
from holdfast.kit.vault import Vault

QUOTA = WindowQuota(name="sign-in", count=3, period_s=900)


async def main(url: str, keys: str) -> None:
    store = await open_store(url, [RateWindow, VisitorSession])
    for _ in range(2):
        await SlidingWindow(store, QUOTA).admit("203.0.113.7")
    visitors = VisitorSessions(store, Vault.from_settings(keys), service="reader")
    print(await visitors.begin("dang"), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
