"""`holdfast serve` as a real process."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from holdfast import __version__

_HOLDFAST = [sys.executable, "-m", "holdfast"]


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*_HOLDFAST, *arguments], cwd=home, capture_output=True, text=True, timeout=30)


@contextlib.contextmanager
def _serving(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [*_HOLDFAST, "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=home, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            address = re.search(r"http://\S+", line)
            assert address is not None, line + process.stderr.read()
            yield process, address[0]
        finally:
            process.kill()


def _get(url: str) -> tuple[int, dict[str, str]]:
    with urlopen(url, timeout=60) as answer:
        return answer.status, json.load(answer)


def test_health_tells_status_and_version(tmp_path: Path) -> None:
    with _serving(tmp_path) as (_, address):
        assert _get(f"{address}/health") == (200, {"status": "ok", "version": __version__})
        assert _get(f"{address}/health/ready") == (200, {"status": "ready"})


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_cleanly_with_exit_0(tmp_path: Path, how: signal.Signals) -> None:
    with _serving(tmp_path) as (process, address):
        _get(f"{address}/health")
        process.send_signal(how)
        assert process.wait(timeout=60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_stopped_server_leaves_its_port_free_at_once(tmp_path: Path) -> None:
    with _serving(tmp_path) as (process, address):
        _get(f"{address}/health")
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    port = address.rsplit(":", 1)[1]
    with _serving(tmp_path, "--port", port) as (_, again):
        assert _get(f"{again}/health")[0] == 200


def test_a_taken_port_is_told_in_one_line_with_exit_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _run(tmp_path, "serve", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"holdfast: port {port} on 127.0.0.1 is taken; stop what uses it, "
        "or choose another with --port or PORT"
    ]
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serve", "--port", "many"], 2, "--port"),
        (["serve", "--port", "70000"], 1, "port must be a whole number from 0 to 65535"),
        (["serve", "--only", "nothing"], 1, "--only: there is no service 'nothing'; there are:"),
        (["serve", "--host", "no such host"], 1, "can't listen on no such host"),
        (["unknown"], 2, "unknown"),
    ],
)
def test_wrong_usage_is_told_without_a_traceback(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    done = _run(tmp_path, *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_version_is_printed(tmp_path: Path) -> None:
    done = _run(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"holdfast {__version__}\n")
