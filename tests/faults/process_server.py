"""A process that has imported what workers need and opened nothing, and forks one for each order.

Starting an interpreter and importing the package takes most of a short test; a fork takes a moment.
`python -m tests.faults.process_server FD` serves a listening socket until its input ends. An order is JSON
that comes with three file descriptors: the worker's input, its output, and one for its id and exit code.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import importlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).parents[2]
ORDER_BYTES_MAX = 1 << 20


@functools.cache
def server_path() -> str:
    """The abstract socket of this process's server, which is started by the first call."""
    path = f"\0holdfast-tests-{os.getpid()}-{secrets.token_hex(8)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.faults.process_server", str(listener.fileno())],
        cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
    )  # fmt: skip
    listener.close()
    atexit.register(server.communicate)
    return path


def order_worker(module: str, role: str, order: dict[str, Any], fds: list[int]) -> None:
    """Have `ROLES[role]` of a module performed by a forked process; the descriptors are given away."""
    words = {"module": module, "role": role, "order": order, "environ": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(server_path())
        socket.send_fds(link, [json.dumps(words).encode()], fds)
        link.shutdown(socket.SHUT_WR)
    for fd in fds:
        os.close(fd)


# -- in the server --------------------------------------------------------------------------------


def serve(listener: socket.socket) -> None:
    # Nobody waits for those who wait for the workers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener.fileno(), 0], [], [])
        if 0 in ready:
            return
        with listener.accept()[0] as link:
            words, fds = _receive(link)
        module = importlib.import_module(words["module"])
        _import_engine(words["order"])
        if os.fork() == 0:
            listener.close()
            _guard(module.ROLES[words["role"]], words, fds)
        for fd in fds:
            os.close(fd)


def _receive(link: socket.socket) -> tuple[dict[str, Any], list[int]]:
    text, fds, _, _ = socket.recv_fds(link, ORDER_BYTES_MAX, 3)
    while more := link.recv(ORDER_BYTES_MAX):
        text += more
    return json.loads(text), fds


def _import_engine(order: dict[str, Any]) -> None:
    engine = str(order.get("url", "")).partition(":")[0].replace("postgresql", "postgres")
    if engine in ("sqlite", "postgres", "firestore"):
        importlib.import_module(f"holdfast.store.{engine}")


def _guard(role: Callable[..., Any], words: dict[str, Any], fds: list[int]) -> None:
    """Fork the worker, tell its id, and tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    taken, told, status = fds
    if (pid := os.fork()) == 0:
        os.close(status)
        os.dup2(taken, 0)
        os.dup2(told, 1)
        os.close(taken)
        os.close(told)
        os.environ.clear()
        os.environ.update(words["environ"])
        _work(lambda: _perform(role, words["order"]))
    os.close(taken)
    os.close(told)
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def _work(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    code = 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(act())
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        # Nothing of the server's may run here: no exit handlers, no buffers to flush twice.
        os._exit(code)


async def _perform(role: Callable[..., Any], order: dict[str, Any]) -> None:
    """Run a role whose words are the lines of input and output."""
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
    serve(socket.socket(fileno=int(sys.argv[1])))
