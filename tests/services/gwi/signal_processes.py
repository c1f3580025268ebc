"""Processes that process the same signals: `python -m tests.services.gwi.signal_processes URL HOME COUNT`.

They are forked from one that has imported everything and opened nothing, and begin together.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import uvloop

from holdfast.clock import SystemClock
from tests.services.gwi.harness import opened


async def process(url: str, home: str) -> None:
    """Process signals until none is pending; say how many were this process's own."""
    async with opened(url, SystemClock(), Path(home)) as harness:
        report = await harness.gwi.signals.process(harness.system, limit=500)
    # One write: all speak into one pipe.
    os.write(1, f"{len(report.results)}\n".encode())


def _forked(url: str, home: str, *, barrier: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.read(barrier, 1)
            uvloop.run(process(url, home))
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return pid


def fork_all(url: str, home: str, *, count: int) -> int:
    """0 if all did well."""
    engine = url.partition(":")[0].replace("postgresql", "postgres")
    importlib.import_module(f"holdfast.store.{engine}")
    reads, writes = os.pipe()
    pids = [_forked(url, home, barrier=reads) for _ in range(count)]
    os.write(writes, b"." * count)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(fork_all(sys.argv[1], sys.argv[2], count=int(sys.argv[3])))
