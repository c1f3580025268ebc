"""Another process: opens a store, creates one note, and exits, or is killed at once.

`python -m holdfast.store.contract.other_process MODULE:CONNECT URL NOTE_ID [killed]`
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys

from holdfast.store.commit import create
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.models import Note


async def visit(connect: str, url: str, id: str, end: str = "leaves") -> None:
    module, _, name = connect.partition(":")
    harness = EngineHarness(getattr(importlib.import_module(module), name), url)
    async with harness.open(migrate=False) as store:
        await store.commit(create(Note(id=id)))
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(visit(*sys.argv[1:]))
