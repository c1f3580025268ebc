"""Starts and stops one server process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.testing import launch

# The kernel ties "signal me when my parent dies" to the thread that started the child, so every
# child is started by one thread that lives as long as this process does.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="holdfast-servers")


class ServerProcess:
    """A child process with a log file, stopped by its own pid."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        death_signal: signal.Signals = signal.SIGKILL,
        owner: tuple[int, int] | None = None,
    ) -> None:
        self._command = command
        self._log = log
        uid, gid = owner or (-1, -1)
        program = shutil.which(command[0]) or command[0]
        prelude = [os.getpid(), int(death_signal), uid, gid]
        launched = [sys.executable, "-I", "-S", launch.__file__, *map(str, prelude), program, *command[1:]]
        self._process = _starter.submit(_spawn, launched, log).result()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Return once `ready` is true; raise with the log's tail when the process dies or is late."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"{self._command[0]} ended with {self._process.returncode}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[0]} is not ready after {timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.01)

    def end(self, how: signal.Signals, *, timeout_s: float = 10.0) -> None:
        """Send the signal and wait; a process that stays is killed. Idempotent."""
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
