"""A worker process under a test's control: read its output, pause, continue or kill it.

It runs `ROLES[role]` of a module, which writes lines to its output and reads lines from its input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.faults.process_server import ROOT, order_worker

__all__ = ["ROOT", "ControlledProcess", "Hear", "Order", "Role", "run_processes"]

Order = dict[str, Any]
Hear = Callable[[], Awaitable[str]]
Role = Callable[[Order, Callable[[str], None], Hear], Awaitable[None]]


class _Pipe:
    """The end of a pipe from which lines are read."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.reader, self._transport = reader, transport

    @classmethod
    async def open(cls, fd: int) -> _Pipe:
        reader = asyncio.StreamReader(limit=1 << 24)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
        )
        return cls(reader, transport)

    def close(self) -> None:
        self._transport.close()


class ControlledProcess:
    """The test's side of one process."""

    def __init__(self, pid: int, *, said: _Pipe, status: _Pipe, input_fd: int) -> None:
        self.pid = pid
        self._said, self._status, self._input_fd = said, status, input_fd
        self._ended = asyncio.ensure_future(status.reader.readline())

    @classmethod
    async def start(cls, module: str, role: str, order: Order) -> ControlledProcess:
        (taken, input_fd), (output, told), (reports, status) = (os.pipe() for _ in range(3))
        order_worker(module, role, order, [taken, told, status])
        said, ended = await _Pipe.open(output), await _Pipe.open(reports)
        return cls(int(await ended.reader.readline()), said=said, status=ended, input_fd=input_fd)

    async def hear(self, *, within_s: float = 60.0) -> str:
        """The next line it says; raises when it ends instead."""
        line = await asyncio.wait_for(self._said.reader.readline(), within_s)
        if not line:
            raise RuntimeError(f"the process ended with {await self._wait()}")
        return line.decode().rstrip("\n")

    async def hear_until(self, word: str, *, within_s: float = 60.0) -> list[str]:
        """All lines up to the one that is this word."""
        heard: list[str] = []
        async with asyncio.timeout(within_s):
            while not heard or heard[-1] != word:
                heard.append(await self.hear())
        return heard

    def say(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._input_fd, line.encode() + b"\n")

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    @property
    def paused(self) -> bool:
        """Whether it stands still, also by its own doing."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2]
        except FileNotFoundError:
            return False
        return state.split()[0] == "T"

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    async def kill(self) -> None:
        self._send(signal.SIGKILL)
        await self._wait()
        if self._input_fd >= 0:
            os.close(self._input_fd)
            self._input_fd = -1
        self._said.close()
        self._status.close()
        # The loop hears of closed pipes only later: one that ends before has them open still.
        for _ in range(3):
            await asyncio.sleep(0)

    async def end(self, *, within_s: float = 60.0) -> list[str]:
        """Hear it out to its own end, which must be a good one."""
        said = await asyncio.wait_for(self._said.reader.read(), within_s)
        assert await self._wait() == 0
        return said.decode().splitlines()

    def _send(self, number: signal.Signals) -> None:
        # Once it is over its id may be another's.
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _wait(self) -> int:
        return int(await asyncio.shield(self._ended))


@contextlib.asynccontextmanager
async def run_processes(module: str, role: str, *orders: Order) -> AsyncIterator[list[ControlledProcess]]:
    """A process for each order, all ended when the block is left."""
    started: list[ControlledProcess] = []
    try:
        started += [await ControlledProcess.start(module, role, order) for order in orders]
        yield started
    finally:
        for puppet in started:
            await puppet.kill()
