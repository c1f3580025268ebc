"""A worker that creates and revokes API tokens by the platform's operations, one after another, for ever."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Final

import msgspec

from holdfast.config import load_config
from holdfast.kit.vault import new_key
from holdfast.model.access import SERVICE
from holdfast.operations import tokens
from holdfast.runtime import Runtime
from tests.faults.fork_server import Say

TENANT: Final = "acme"
_KEYS: Final = new_key("test")


async def open_runtime(url: str, *, migrate: bool = False) -> Runtime:
    config = msgspec.structs.replace(load_config(environ={}), store=url, keys=_KEYS)
    return await Runtime.open(config, services=(), migrate=migrate)


async def operate(order: dict[str, Any], say: Say) -> None:
    runtime = await open_runtime(order["url"])
    say("open")
    os.read(order["barrier"], 1)
    await asyncio.gather(*(_create_and_revoke(runtime, f"{order['round']}-{lane}", say) for lane in "ab"))


async def _create_and_revoke(runtime: Runtime, lane: str, say: Say) -> None:
    by, number = runtime.operator(SERVICE, TENANT, actor="cli:worker"), 0
    while True:
        name = f"{lane}-{number}"
        created = await tokens.create(runtime, by, name, role="viewer")
        say(f"created {name}")
        if number % 2:
            await tokens.revoke(runtime, by, created.token[3:19])
            say(f"revoked {created.token[3:19]}")
        number += 1
