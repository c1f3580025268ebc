"""A process that has imported everything and opened nothing, from which workers are forked in a moment.

Starting an interpreter takes longer than a whole crash round, so one is started once and forks.
`python -m tests.faults.fork_server` reads one order a line and answers each with one line.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TextIO

import uvloop

ROOT = Path(__file__).parents[2]
Say = Callable[[str], None]
Role = Callable[[dict[str, Any], Say], Coroutine[Any, Any, None]]


class ForkServer:
    """The test's side: sends orders, gets what the workers said."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.faults.fork_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def together(self, role: str, **order: Any) -> list[dict[str, Any]]:
        """Four workers start at the same moment and work to their end; gives what each reports."""
        return [json.loads(lines[-1]) for lines in self._ask(order | {"role": role, "workers": 4})]

    def alone(self, role: str, **order: Any) -> dict[str, Any]:
        """One worker to its end; gives what it reports."""
        (lines,) = self._ask(order | {"role": role, "workers": 1})
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def killed(self, role: str, *, after_s: float, words: int = 1, **order: Any) -> list[str]:
        """One worker is killed this long after it said so many words; gives all it had said."""
        asked = {"role": role, "workers": 1, "kill_after_s": after_s, "words": words}
        (lines,) = self._ask(order | asked)
        return lines

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, order: dict[str, Any]) -> list[list[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: list[list[str]] = json.loads(self._process.stdout.readline())
        return answer


# -- in the fork_server -------------------------------------------------------------------------------


class Child:
    """A forked worker and the pipe on which it speaks."""

    def __init__(self, role: Role, order: dict[str, Any], barrier: tuple[int, int]) -> None:
        self._reads, writes = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reads)
            os.close(barrier[1])
            _work(role, order | {"barrier": barrier[0]}, writes)
        os.close(writes)
        self._said = b""

    def listen(self, *, until: float | None = None, words: int | None = None) -> bool:
        """Hear the worker out: to its end, to a moment, or to so many words. False once it is silent."""
        while words is None or self._said.count(b"\n") < words:
            left = None if until is None else until - time.monotonic()
            if left is not None and (left <= 0 or not select.select([self._reads], [], [], left)[0]):
                return True
            heard = os.read(self._reads, 1 << 16)
            if not heard:
                return False
            self._said += heard
        return True

    def end(self) -> list[str]:
        """All that it said, in whole lines; raises when it failed."""
        self.listen()
        os.close(self._reads)
        _, status = os.waitpid(self.pid, 0)
        if status not in (0, signal.SIGKILL):
            raise RuntimeError(f"a worker ended with {os.waitstatus_to_exitcode(status)}")
        return [line.decode() for line in self._said.split(b"\n")[:-1]]


def _work(role: Role, order: dict[str, Any], pipe: int) -> None:
    status = 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(role(order, lambda word: _write(pipe, word)))
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # Nothing of the parent's may run here: no exit handlers, no buffers to flush twice.
        os._exit(status)


def _write(pipe: int, word: str) -> None:
    rest = word.encode() + b"\n"
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _obey(order: dict[str, Any], roles: dict[str, Role]) -> list[list[str]]:
    barrier = os.pipe()
    role = roles[order["role"]]
    children = [Child(role, order | {"name": f"w{n}"}, barrier) for n in range(order["workers"])]
    os.close(barrier[0])
    for child in children:
        child.listen(words=min(1, order.get("words", 1)))
    os.close(barrier[1])
    if "kill_after_s" in order:
        children[0].listen(words=order["words"])
        children[0].listen(until=time.monotonic() + order["kill_after_s"])
        os.kill(children[0].pid, signal.SIGKILL)
    return [child.end() for child in children]


def serve(orders: TextIO, answers: TextIO) -> None:
    from tests.faults.worker import ROLES

    for line in orders:
        order = json.loads(line)
        engine = order["url"].partition(":")[0].replace("postgresql", "postgres")
        importlib.import_module(f"holdfast.store.{engine}")
        answers.write(json.dumps(_obey(order, ROLES)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
