"""A dispatcher that says which turns of a rate it was granted and took: `ROLES` of a controlled process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, endpoint_queue
from holdfast.kit.outbox.shared_rate import ReservedTurns
from holdfast.kit.rate_limit import RateLimitDocument
from holdfast.model import Document
from tests.faults.controlled_process import Hear, Order, Role
from tests.kit.outbox_fixture import dispatching

DOCUMENTS: list[type[Document]] = [*OUTBOX_MODELS.all, RateLimitDocument]


async def dispatch(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Deliver until told to stop. Times are since boot, which is the same for all processes on a machine."""

    class Observed(ReservedTurns):
        def take(self, now: float) -> bool:
            taken = super().take(now)
            if taken:
                say(f"taken {time.monotonic_ns() // 1_000}")
            return taken

        def add(self, turns: Iterable[float]) -> None:
            for turn in (reserved := list(turns)):
                say(f"granted {round(turn * 1e6)}")
            super().add(reserved)

    vars(endpoint_queue)["ReservedTurns"] = Observed
    store = await open_store(order["url"], DOCUMENTS)
    say("ready")
    await hear()
    async with dispatching(store, lease_s=3.0):
        await hear()
    await store.close()
    say("stopped")
    await asyncio.sleep(0)


ROLES: dict[str, Role] = {"dispatch": dispatch}
