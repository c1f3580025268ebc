"""A part of the work, done in a process beside this one: what needs a processor of its own gets one.

    this process                            the companion
    ── which store, which part ──────────►  imports the part, opens the store
    ◄─────────────────────────── ready ──
    ── what to do ───────────────────────►
    ◄──────────── what comes of it, end ──  the part's own stream

A message is its length, a letter and bytes. The companion only reads and computes; what comes of it is
kept by who asked. It ends when its input does, and so also when this process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import IO, Final

import msgspec
import structlog

from holdfast.app import open_store
from holdfast.service import SubprocessTask, WorkerLostError
from holdfast.worker import freeze_gc

LENGTH: Final = 4
# How much of what the companion gave may wait in this process.
UNREAD_BYTES_MAX: Final = 1_000_000
REST_S: Final = 60.0
# Who says nothing for so long is taken for lost, whatever it is at.
SILENCE_S_MAX: Final = 120.0
READY, MORE, END, FAULT = b"r", b"m", b"e", b"f"
log: Final = structlog.get_logger("holdfast.subprocess_worker")


class Opening(msgspec.Struct, frozen=True):
    """What a companion must know to begin. It goes through the pipe: an address may hold a password."""

    url: str
    env: str
    part: str
    path: list[str]  # where its modules are found, as here


class StoreSubprocessPool:
    """Starts companions that look at the same store, and lets one wait a minute for the next who asks.

    Example: `async with Beside(url)("shop.pricing:PART") as companion: ...`
    """

    def __init__(self, url: str, *, env: str = "dev", rest_s: float = REST_S) -> None:
        self._url, self._env, self._rest_s = url, env, rest_s
        self._resting: dict[str, StoreSubprocessWorker] = {}

    @contextlib.asynccontextmanager
    async def __call__(self, part: str) -> AsyncIterator[StoreSubprocessWorker]:
        """A companion for as long as the block lasts; one that can't be started is never ready."""
        companion = self._resting.pop(part, None)
        if companion is not None and companion.at_rest:
            companion.stay()
        else:
            companion = await self._start(part)
        try:
            yield companion
        finally:
            if companion.at_rest and part not in self._resting:
                self._resting[part] = companion
                companion.end_after(self._rest_s)
            else:
                await companion.close()

    async def close(self) -> None:
        """End those that wait."""
        while self._resting:
            await self._resting.popitem()[1].close()

    async def _start(self, part: str) -> StoreSubprocessWorker:
        process = None
        with contextlib.suppress(OSError):
            process = await ChildProcess.start(sys.executable, "-P", "-m", "holdfast.subprocess_worker")
        return StoreSubprocessWorker(process, Opening(self._url, self._env, part, sys.path))


class ChildProcess:
    """A process whose input and output are streams of this event loop.

    Started by `subprocess`, which runs nothing between fork and exec. The loop's own way to start one
    (uvloop's) runs the interpreter and the fork handlers of libraries in the child, which crash there when
    another thread was at work.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
    ) -> None:  # fmt: skip
        self._process, self.stdin, self.stdout, self._reading = process, stdin, stdout, reading
        self.pid = process.pid

    @classmethod
    async def start(cls, *command: str) -> ChildProcess:
        """Start a command; OSError where that is not possible."""
        loop, stdout = asyncio.get_running_loop(), asyncio.StreamReader(limit=UNREAD_BYTES_MAX)
        process = subprocess.Popen(  # noqa: ASYNC220 - milliseconds; see above
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), process.stdout
        )
        writing, flow = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
        )
        return cls(process, asyncio.StreamWriter(writing, flow, None, loop), stdout, reading)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def end(self) -> None:
        """Kill it, wait for its end and close the pipes."""
        self._process.kill()
        self.stdin.close()
        self._reading.close()
        await asyncio.to_thread(self._process.wait)


class StoreSubprocessWorker:
    """A process beside this one, seen from here."""

    def __init__(self, process: ChildProcess | None, opening: Opening) -> None:
        self._process = process
        self._opened = asyncio.create_task(self._open(opening))
        self._busy = False
        self._end: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        return self._opened.done() and not self._opened.cancelled() and self._opened.exception() is None

    @property
    def at_rest(self) -> bool:
        """Whether it lives, is ready, and has nothing to do."""
        alive = self._process is not None and self._process.alive
        return alive and self.ready and not self._busy

    async def begun(self) -> None:
        """Returns once it is ready; `WorkerLostError` where it will never be."""
        await asyncio.shield(self._opened)

    async def stream(self, given: bytes) -> AsyncGenerator[bytes, None]:
        """What the part makes of what is given; `WorkerLostError` where that ends too early."""
        await self.begun()
        self._busy = True
        await self._send(given)
        while True:
            kind, message = await self._receive()
            if kind == END:
                self._busy = False
                return
            yield message

    def end_after(self, seconds: float) -> None:
        """Let it go then, unless it is told to stay before."""
        self._end = asyncio.create_task(self._rest(seconds))

    def stay(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._end = None
        await self.close()

    async def close(self) -> None:
        """End it, whatever it is at."""
        self.stay()
        self._busy = True
        self._opened.cancel()
        await asyncio.gather(self._opened, return_exceptions=True)
        if self._process is not None:
            await self._process.end()

    async def _open(self, opening: Opening) -> None:
        await self._send(msgspec.json.encode(opening))
        await self._receive()

    async def _send(self, message: bytes) -> None:
        if self._process is None:
            raise WorkerLostError("it could not be started")
        try:
            self._process.stdin.write(_framed(message))
            await self._process.stdin.drain()
        except (OSError, RuntimeError) as fault:  # uvloop says of a closed pipe that it is one by the latter
            raise WorkerLostError(f"it is gone: {fault}") from None

    async def _receive(self) -> tuple[bytes, bytes]:
        assert self._process is not None
        pipe = self._process.stdout
        try:
            async with asyncio.timeout(SILENCE_S_MAX):
                size = int.from_bytes(await pipe.readexactly(LENGTH), "big")
                message = await pipe.readexactly(size)
        except asyncio.IncompleteReadError:
            raise WorkerLostError("it ended in the middle of its work") from None
        except TimeoutError:
            raise WorkerLostError(f"nothing was heard from it for {SILENCE_S_MAX:g} s") from None
        kind = message[:1]
        if kind == FAULT:
            raise WorkerLostError(message[1:].decode())
        return kind, message[1:]


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH, "big") + message


# -- in the companion -----------------------------------------------------------------------------


class _Desk:
    """The companion's end of the pipes."""

    def __init__(self, given: IO[bytes], answers: IO[bytes]) -> None:
        self._given, self._answers = given, answers

    async def read(self) -> bytes | None:
        """The next message; None once there will be none."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes | None:
        size = self._given.read(LENGTH)
        return self._given.read(int.from_bytes(size, "big")) if len(size) == LENGTH else None

    async def write(self, kind: bytes, message: bytes = b"") -> None:
        await asyncio.to_thread(self._write, _framed(kind + message))

    def _write(self, message: bytes) -> None:
        self._answers.write(message)
        self._answers.flush()


async def _work(desk: _Desk) -> None:
    first = await desk.read()
    if first is None:
        return
    opening = msgspec.json.decode(first, type=Opening)
    sys.path[:] = opening.path
    module, _, name = opening.part.partition(":")
    part: SubprocessTask = getattr(importlib.import_module(module), name)
    store = await open_store(opening.url, part.documents, env=opening.env)
    freeze_gc()
    try:
        await desk.write(READY)
        while (given := await desk.read()) is not None:
            await _pass_on(part.act(store, given), desk)
    finally:
        await store.close()


async def _pass_on(made: AsyncIterator[bytes], desk: _Desk) -> None:
    """One message is on its way while the next is made."""
    going: asyncio.Task[None] | None = None
    async for message in made:
        if going is not None:
            await going
        going = asyncio.create_task(desk.write(MORE, message))
    if going is not None:
        await going
    await desk.write(END)


def main() -> None:
    """The companion's life, from its first message to the end of its input."""
    # Who started it decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever else is printed must not come between the messages.
    os.dup2(2, 1)
    desk = _Desk(sys.stdin.buffer, answers)
    try:
        asyncio.run(_work(desk))
    except BrokenPipeError:
        # Nobody listens any more; what is left in the buffer has nowhere to go.
        os._exit(0)
    except Exception as fault:
        with contextlib.suppress(OSError):
            desk._write(_framed(FAULT + f"{type(fault).__name__}: {fault}".encode()))
        os._exit(1)


if __name__ == "__main__":
    main()
