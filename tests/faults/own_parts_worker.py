"""A process that works for one of two services, each with every part of the kit under its own names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.config import load_config
from holdfast.runtime import Runtime
from tests.examples.own_parts import HARBOUR, ORCHARD
from tests.faults.controlled_process import Hear, Order, Role

SERVICES = {one.name: one for one in (ORCHARD, HARBOUR)}


async def work(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Run the loops of one service until told to stop."""
    config = load_config({"home": order["home"], "store": order["url"]}, environ={})
    runtime = await Runtime.open(config, services=[SERVICES[order["service"]].service()])
    stop = asyncio.Event()
    working = asyncio.create_task(runtime.work(stop))
    say("open")
    await hear()
    stop.set()
    await working
    await runtime.close()


ROLES: dict[str, Role] = {"work": work}
