"""A process of the service that dies before or after any write and any call to Google."""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from typing import Any

import msgspec

from holdfast.kit.audit import Audit
from holdfast.kit.inbox import InboxWorker
from holdfast.operation import Operator
from holdfast.services.calendar_sync import build, service
from holdfast.services.calendar_sync.operations import CalendarSync
from tests.kit.fake_channel_provider import CrashError, Fuse, fused
from tests.services.calendar_sync.harness import Harness

__all__ = ["CrashError", "CrashingProcess", "Fuse"]

_WORK = ("Syncs._act", "InboxWorker._act", "Channels._act")
_CALLS = ("list_events", "get_event", "patch_event", "watch_events", "stop_channel")


class CrashingProcess:
    """The service as another process on the harness's store, with a fuse burning."""

    def __init__(self, harness: Harness, fuse: Fuse) -> None:
        context = harness.runtime._context(service)
        store = fused(harness.runtime.store, fuse)
        self.audits = lru_cache(partial(Audit, store))
        self.parts = build(msgspec.structs.replace(context, store=store, audit=self.audits))
        self.operations: CalendarSync = self.parts.operations
        self.engine = self.operations.engine
        self.inbox = InboxWorker(store, self.parts.handlers)
        calendar = self.engine.google.calendar

        def burning(email: str) -> Any:
            client = calendar(email)
            for name in _CALLS:
                if not hasattr(getattr(client, name), "burning"):
                    setattr(client, name, _burning(getattr(client, name), fuse))
            return client

        self.engine.google.calendar = burning

    def operator(self, by: Operator) -> Operator:
        """The same person, acting through this process."""
        return msgspec.structs.replace(by, audits=self.audits)

    async def start(self) -> None:
        await self.engine.start()

    async def close(self) -> None:
        """What else the dead process had under way ends with it."""
        others = [task for task in asyncio.all_tasks() if _name(task) in _WORK]
        await asyncio.gather(*others, return_exceptions=True)


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "")


def _burning(act: Any, fuse: Fuse) -> Any:
    async def call(*words: Any, **named: Any) -> Any:
        return await fuse.around(lambda: act(*words, **named))

    call.burning = True  # type: ignore[attr-defined]
    return call
