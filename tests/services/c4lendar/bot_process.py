"""A bot whose process may be gone before or after any write or call to Google, and one that really is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.errors import RetryLaterError
from holdfast.kit.audit import Audit
from holdfast.kit.inbox import InboxLimits, InboxWorker
from holdfast.kit.runs import Runner
from holdfast.providers.google_calendar import GoogleCalendar
from holdfast.runtime import Runtime
from holdfast.services.c4lendar import service
from holdfast.services.c4lendar.bot import Bot
from holdfast.services.c4lendar.parts import SOURCE, build
from tests.faults.controlled_process import Hear, Order, Role
from tests.kit.fake_channel_provider import Fuse, fused

LEASE_S = 2.0


class KillFuse(Fuse):
    """Ends its own process by SIGKILL."""

    def burn(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left is not None:
            self.left -= 1


def fused_workers(runtime: Runtime, fuse: Fuse, *, lease_s: float = 60.0) -> tuple[InboxWorker, Runner]:
    """The workers of a bot of its own, on the runtime's store."""
    store = fused(runtime.store, fuse)
    audits: Any = lru_cache(partial(Audit, store))
    parts = build(msgspec.structs.replace(runtime._context(service), store=store, audit=audits))
    limits = InboxLimits(lease_s=lease_s, time_limit_s=lease_s)
    runner = Runner(store.privileged(), parts.workflows, lease_s=lease_s, renew_s=lease_s / 3)
    return InboxWorker(store, parts.handlers, limits=limits), runner


def fuse_calls(patch: Callable[[type, str, Any], None], fuse: Fuse) -> None:
    """Let the fuse burn around each call to Google that changes an event."""
    for name in ("insert_event", "patch_event", "delete_event"):
        patch(GoogleCalendar, name, _burning(getattr(GoogleCalendar, name), fuse))


def _burning(act: Any, fuse: Fuse) -> Any:
    async def call(*given: Any, **named: Any) -> Any:
        return await fuse.around(lambda: act(*given, **named))

    return call


@contextlib.asynccontextmanager
async def _opened(order: Order) -> AsyncIterator[Runtime]:
    base = load_config({"home": Path(order["home"]), "store": order["url"]}, environ={})
    config = msgspec.structs.replace(base, service_settings={"c4lendar": order["settings"]})
    runtime = await Runtime.open(config, services=[service], clock=SystemClock())
    try:
        yield runtime
    finally:
        await runtime.close()


async def work(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Works until it is told to stop, or dies at its moment."""
    async with _opened(order) as runtime:
        fuse = KillFuse(order["moment"])
        fuse_calls(setattr, fuse)
        inbox, runner = fused_workers(runtime, fuse, lease_s=LEASE_S)
        stopped = asyncio.ensure_future(hear())
        while not stopped.done():
            if not await inbox.turn() + await runner.turn():
                await asyncio.sleep(LEASE_S / 20)
        say("stopped")


async def send(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Sends texts to chats, all at once."""
    async with _opened(order) as runtime:
        bot: Bot = runtime.parts["c4lendar"].handlers[SOURCE].__self__  # type: ignore[attr-defined]
        await asyncio.gather(*(_send(bot, chat_id, text) for chat_id, text in order["messages"]))


async def _send(bot: Bot, chat_id: int, text: str) -> None:
    """As a run does: once more where Telegram refused it for now."""
    while True:
        try:
            await bot.telegram.send_message(chat_id, text)
            return
        except RetryLaterError as later:
            await asyncio.sleep(later.after_s)


ROLES: dict[str, Role] = {"work": work, "send": send}
