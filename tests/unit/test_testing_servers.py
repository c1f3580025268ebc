"""The servers that tests run on are real, separate, and gone when they should be."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from holdfast.testing import (
    EmulatorMissingError,
    OwnPostgresServer,
    PostgresServer,
    deploy_rules,
    firestore_emulator,
    fresh_database,
    postgres_server,
)
from holdfast.testing.process import ServerProcess

_DENY_ALL = """
rules_version = '2';
service cloud.firestore {
  match /databases/{database}/documents { match /{document=**} { allow read, write: if false; } }
}
"""


async def _value(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def _document_status(address: str, project: str, *, token: str | None) -> int:
    url = f"http://{address}/v1/projects/{project}/databases/(default)/documents/things/one"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_a_postgres_url_is_an_empty_database_with_full_durability(postgres_url: str) -> None:
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert await _value(postgres_url, tables) == 0
    assert await _value(postgres_url, "SHOW fsync") == "on"
    assert await _value(postgres_url, "SHOW synchronous_commit") == "on"


async def test_two_databases_of_one_server_don_t_see_each_other(postgres_url: str) -> None:
    with postgres_server() as server, fresh_database(server) as other_url:
        await _value(postgres_url, "CREATE TABLE here (n int)")
        assert await _value(other_url, "SELECT to_regclass('here')::text") is None


async def test_a_fresh_database_is_dropped_also_when_somebody_is_connected(postgres_url: str) -> None:
    with postgres_server() as server:
        with fresh_database(server) as url:
            connection = await asyncpg.connect(url)
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await asyncpg.connect(url)
        connection.terminate()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_an_own_server_restarts_in_place_and_keeps_what_was_committed(
    own_postgres: OwnPostgresServer, mode: str
) -> None:
    await _value(own_postgres.url, "CREATE TABLE kept AS SELECT 7 AS n")
    started = await _value(own_postgres.url, "SELECT pg_postmaster_start_time()")
    own_postgres.restart("fast" if mode == "fast" else "immediate")
    assert await _value(own_postgres.url, "SELECT n FROM kept") == 7
    assert await _value(own_postgres.url, "SELECT pg_postmaster_start_time()") != started


async def test_a_stopped_own_server_refuses_connections_until_it_is_started(
    own_postgres: OwnPostgresServer,
) -> None:
    own_postgres.stop()
    with pytest.raises(OSError, match="Connect"):
        await asyncpg.connect(own_postgres.url)
    own_postgres.start()
    assert await _value(own_postgres.url, "SELECT 1") == 1


def test_a_server_that_is_given_can_not_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_POSTGRES", "postgresql://somebody@elsewhere/db")
    with postgres_server() as server:
        assert type(server) is PostgresServer
        assert server.url == "postgresql://somebody@elsewhere/db"
        with pytest.raises(RuntimeError, match="not ours to restart"):
            server.restart()
        with pytest.raises(RuntimeError, match="not ours to stop"):
            server.stop()


def test_a_firestore_url_names_a_project_of_a_running_emulator(firestore_url: str) -> None:
    url = urlsplit(firestore_url)
    [address] = parse_qs(url.query)["emulator"]
    assert url.hostname is not None
    assert _document_status(address, url.hostname, token="owner") == 404


def test_a_project_with_rules_is_judged_by_them_and_no_other(firestore_url: str) -> None:
    [address] = parse_qs(urlsplit(firestore_url).query)["emulator"]
    deploy_rules(address, "proj-rules", _DENY_ALL)
    assert _document_status(address, "proj-rules", token=None) == 403
    assert _document_status(address, "proj-rules", token="owner") == 404
    assert _document_status(address, "proj-open", token=None) == 404
    with pytest.raises(ValueError, match="Error compiling rules"):
        deploy_rules(address, "proj-rules", "these are none")


def test_without_an_emulator_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.delenv("HOLDFAST_TEST_FIRESTORE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmulatorMissingError, match="cloud-firestore-emulator"), firestore_emulator():
        pass


_START_AND_WAIT = """
import sys
from pathlib import Path
from holdfast.testing import postgres_server
from holdfast.testing.process import ServerProcess
if sys.argv[1] == "postgres":
    with postgres_server(own=True) as server:
        print(server.pid, flush=True)
        sys.stdin.read()
else:
    process = ServerProcess(["sleep", "600"], log=Path(sys.argv[2]))
    print(process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for it, which only Linux offers")
@pytest.mark.parametrize("which", ["postgres", "other"])
def test_a_server_ends_when_the_process_that_started_it_is_killed(tmp_path: Path, which: str) -> None:
    command = [sys.executable, "-c", _START_AND_WAIT, which, str(tmp_path / "log")]
    # A killed starter can't tidy up, so what it leaves goes where we do; tmp_path itself is closed
    # to the user that the server runs as.
    with tempfile.TemporaryDirectory() as left:
        Path(left).chmod(0o755)
        with _started(command, TMPDIR=left) as starter:
            assert starter.stdout is not None
            server = os.pidfd_open(int(starter.stdout.readline()))
            assert not _ended(server, within_s=0)
            starter.send_signal(signal.SIGKILL)
            assert _ended(server, within_s=10)
            os.close(server)


def test_a_server_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        process = thread.submit(ServerProcess, ["sleep", "600"], log=tmp_path / "log").result()
    server = os.pidfd_open(process.pid)
    assert not _ended(server, within_s=0.2)
    process.end(signal.SIGTERM)
    assert _ended(server, within_s=0)
    os.close(server)


def test_a_server_that_dies_at_the_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = ServerProcess(["sh", "-c", "echo no space left; exit 3"], log=tmp_path / "log")
    with pytest.raises(RuntimeError, match=r"sh ended with 3:\nno space left"):
        process.wait_until(lambda: False, timeout_s=10)


def _started(command: list[str], **environ: str) -> subprocess.Popen[str]:
    piped = subprocess.PIPE
    return subprocess.Popen(command, stdin=piped, stdout=piped, text=True, env=os.environ | environ)


def _ended(pidfd: int, *, within_s: float) -> bool:
    return bool(select.select([pidfd], [], [], within_s)[0])
