"""A worker process under a test's control: read its output, pause, continue or kill it.

`python -m tests.faults.controlled_process MODULE ROLE ORDER` runs `ROLES[ROLE]` of the module, which writes
lines to its output and reads lines from its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).parents[2]
Order = dict[str, Any]
Hear = Callable[[], Awaitable[str]]
Role = Callable[[Order, Callable[[str], None], Hear], Awaitable[None]]


class ControlledProcess:
    """The test's side of one process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hear(self, *, within_s: float = 60.0) -> str:
        """The next line it says; raises when it ends instead."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), within_s)
        if not line:
            raise RuntimeError(f"the process ended with {await self._process.wait()}")
        return line.decode().rstrip("\n")

    async def hear_until(self, word: str, *, within_s: float = 60.0) -> list[str]:
        """All lines up to the one that is this word."""
        heard: list[str] = []
        async with asyncio.timeout(within_s):
            while not heard or heard[-1] != word:
                heard.append(await self.hear())
        return heard

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    @property
    def paused(self) -> bool:
        """Whether it stands still, also by its own doing."""
        try:
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
        except FileNotFoundError:
            return False
        return state.split()[0] == "T"

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        # Its pipes are heard of only later: a loop that ends before has them open still.
        self._process._transport.close()  # type: ignore[attr-defined]
        for _ in range(3):
            await asyncio.sleep(0)

    async def end(self, *, within_s: float = 60.0) -> list[str]:
        """Hear it out to its own end, which must be a good one."""
        assert self._process.stdout is not None
        said = await asyncio.wait_for(self._process.stdout.read(), within_s)
        assert await self._process.wait() == 0
        return said.decode().splitlines()


@contextlib.asynccontextmanager
async def run_processes(module: str, role: str, *orders: Order) -> AsyncIterator[list[ControlledProcess]]:
    """A process for each order, all ended when the block is left."""
    started: list[ControlledProcess] = []
    try:
        started += await asyncio.gather(*(_start(module, role, order) for order in orders))
        yield started
    finally:
        for puppet in started:
            await puppet.kill()


async def _start(module: str, role: str, order: Order) -> ControlledProcess:
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.faults.controlled_process",
        module,
        role,
        json.dumps(order),
    ]
    pipe = asyncio.subprocess.PIPE
    return ControlledProcess(
        await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=1 << 24)
    )


async def _perform(role: Role, order: Order) -> None:
    loop = asyncio.get_running_loop()
    heard = asyncio.StreamReader()
    ear, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(heard), sys.stdin)

    async def hear() -> str:
        return (await heard.readline()).decode().rstrip("\n")

    try:
        await role(order, lambda line: print(line, flush=True), hear)
    finally:
        ear.close()


if __name__ == "__main__":
    roles: dict[str, Role] = importlib.import_module(sys.argv[1]).ROLES
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_perform(roles[sys.argv[2]], json.loads(sys.argv[3])))
