"""Another process: opens the store at an address, keeps one note, and goes, or is killed at once.

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
    home = EngineHarness(getattr(importlib.import_module(module), name), url)
    async with home.open(migrate=False) as store:
        await store.commit(create(Note(id=id)))
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(visit(*sys.argv[1:]))
