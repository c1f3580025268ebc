"""A demo as a real process."""

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
_IGNORED = ("HOLDFAST_", "PORT")


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment without the developer's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_IGNORED)}
    return {**kept, "HOLDFAST_HOME": str(home / "home"), **more}


def holdfast(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a subprocess."""
    return subprocess.run(
        [*HOLDFAST, *arguments], cwd=home, env=environment(home, **variables), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip


def run_json(home: Path, *arguments: str, **variables: str) -> Any:
    """Run a command with --json and return its output."""
    done = typed(home, *arguments, "--json", HOLDFAST_HOME=str(home / "home"), **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def list_items(home: Path, *arguments: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = run_json(home, *arguments)["items"]
    return items


def admin_token(home: Path, **variables: str) -> str:
    token: str = run_json(home, "tokens", "create", "me", "--role", "admin", **variables)["token"]
    return token


@dataclass
class DemoProcess:
    process: subprocess.Popen[str]
    url: str
    output: str
    ready_s: float  # without waiting for a CPU

    def ask(self, path: str, *, token: str = "", body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Status and JSON; with a body it is a POST."""
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {token}"} if token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self.url + path, data=data, headers=headers), timeout=60) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def interrupt(self) -> float:
        """Send SIGINT; return the seconds until it exited with code 0."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=60) == 0
        return time.monotonic() - began


@contextlib.contextmanager
def start_demo(home: Path, *arguments: str, **variables: str) -> Iterator[DemoProcess]:
    """Start a demo; yield once it is ready."""
    began = time.monotonic()
    log = (home / "stderr").open("w")
    with log, subprocess.Popen(
        [*HOLDFAST, "demo", *(arguments or ("--port", "0"))], cwd=home, env=environment(home, **variables),
        stdout=subprocess.PIPE, stderr=log, text=True,
    ) as process:  # fmt: skip
        try:
            output = _read_ready_message(process)
            address = re.search(r"Try it +(http://[^/\s]+)/", output)
            assert address is not None, output + (home / "stderr").read_text()
            ready_s = time.monotonic() - began - _cpu_wait_s(process.pid)
            yield DemoProcess(process, address[1], output, ready_s)
        finally:
            process.kill()


def _cpu_wait_s(pid: int) -> float:
    """Seconds that the process waited for a CPU."""
    _, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(waited_ns) / 1e9


def _read_ready_message(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.strip().startswith("Data "):
            break
    return "".join(lines)


def wait_for(condition: Callable[[], Any], *, timeout_s: float = 60.0) -> Any:
    """Poll until the condition is true and return its value."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, "the condition never became true"
        time.sleep(0.05)
    return found
