"""A demo as a real process, and what a person asks of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.cli.terminal import typed

HOLDFAST = [sys.executable, "-m", "holdfast"]
START_S = 60.0
_LEFT_OUT = ("HOLDFAST_", "PORT")


def environment(home: Path, **more: str) -> dict[str, str]:
    """The tests' own, without settings of whoever runs them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    return {**kept, "HOLDFAST_HOME": str(home / "home"), **more}


def holdfast(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run(
        [*HOLDFAST, *arguments], cwd=home, env=environment(home, **variables), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


def told(home: Path, *arguments: str, **variables: str) -> Any:
    """What a command tells a program, beside the demo or after it."""
    done = typed(home, *arguments, "--json", HOLDFAST_HOME=str(home / "home"), **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed(home: Path, *arguments: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = told(home, *arguments)["items"]
    return items


def admin_token(home: Path, **variables: str) -> str:
    token: str = told(home, "tokens", "create", "me", "--role", "admin", **variables)["token"]
    return token


@dataclass
class Play:
    process: subprocess.Popen[str]
    url: str
    said: str
    ready_s: float  # without what it waited for a processor that others had

    def ask(self, path: str, *, token: str = "", body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Status and JSON; with a body it is a POST."""
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {token}"} if token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.url + path, data=data, headers=headers), timeout=10) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def interrupt(self) -> float:
        """Ctrl-C; the seconds until it had ended, which must be with exit code 0."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=10) == 0
        return time.monotonic() - began


@contextlib.contextmanager
def playing(home: Path, *arguments: str, **variables: str) -> Iterator[Play]:
    """A demo, from its greeting on."""
    began = time.monotonic()
    log = (home / "stderr").open("w")
    with log, subprocess.Popen(
        [*HOLDFAST, "demo", *(arguments or ("--port", "0"))], cwd=home, env=environment(home, **variables),
        stdout=subprocess.PIPE, stderr=log, text=True,
    ) as process:  # fmt: skip
        try:
            said = _greeting(process)
            address = re.search(r"Try it +(http://[^/\s]+)/", said)
            assert address is not None, said + (home / "stderr").read_text()
            ready_s = time.monotonic() - began - _kept_waiting_s(process.pid)
            yield Play(process, address[1], said, ready_s)
        finally:
            process.kill()


def _kept_waiting_s(pid: int) -> float:
    """For how long the process could have gone on, had the machine not been busy with others."""
    _, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(waited_ns) / 1e9


def _greeting(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.strip().startswith("Data "):
            break
    return "".join(lines)


def until(condition: Callable[[], Any], *, timeout_s: float = 60.0) -> Any:
    """What the condition gives once it is true; fails when it never is."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.05)
    return found
