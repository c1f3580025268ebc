"""Real servers for the whole run, a fresh place on them for each test, and a line per engine at the end.

Under xdist the controller starts the servers before its workers, which find them in the
environment; without it a server starts when the first test asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import apsw
import pytest
import structlog
import uvloop
from argon2 import PasswordHasher
from hypothesis import HealthCheck, settings

from holdfast.kit.access import passwords
from holdfast.testing import (
    EmulatorMissingError,
    ManualClock,
    OwnPostgresServer,
    PostgresMissingError,
    PostgresServer,
    firestore_emulator,
    fresh_database,
    postgres_server,
    postgres_version,
)
from tests.memory import work_in_memory
from tests.signature_cache import cache_signatures
from tests.store_templates import TEMPLATES, fill_stores_of_runtimes

_RAN = pytest.StashKey[Counter[str]]()
_MISSING = pytest.StashKey[dict[str, str]]()
_SAID = pytest.StashKey[list[str]]()
_LONGEST = {
    "test_copy_faults.py", "test_crash.py", "test_default_installation.py", "test_delivery_faults.py",
    "test_demo.py", "test_described.py", "test_doors.py", "test_history.py", "test_kill.py", "test_life.py",
    "test_on_record.py", "test_outbox_fire.py", "test_rotation.py", "test_run_interruptions.py",
    "test_trigger_jobs.py",
}  # fmt: skip


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RAN] = Counter()
    config.stash[_MISSING] = {}
    config.stash[_SAID] = []
    config.pluginmanager.register(_EngineCount(config), "engine-count")
    _log_plain_tracebacks()
    # The same examples in every run, however slow the machine; HOLDFAST_RANDOM=1 looks for new ones.
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=slow
    )
    if not os.environ.get("HOLDFAST_RANDOM"):
        settings.load_profile("repeatable")
    # Google's client warns of a Python version's end; tests read the first line that a process writes.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:You are using a Python version:FutureWarning")
    # Workers find what is theirs in the environment.
    if not hasattr(config, "workerinput"):
        _keep_bytecode()
        work_in_memory(config)
        if config.getoption("numprocesses", None):
            _start_for_workers(config)


def _keep_bytecode() -> None:
    """Tests start hundreds of processes: compiling the package is a third of what each start costs."""
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _log_plain_tracebacks() -> None:
    """A traceback with local values, which structlog writes where it is not configured, takes seconds."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded to run tests stays: looking through it for garbage is a tenth of a run's work."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that none of them is what the others wait for at the end."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def _start_for_workers(config: pytest.Config) -> None:
    servers = contextlib.ExitStack()
    config.add_cleanup(servers.close)
    # A server that is missing is told by the tests that need it.
    with contextlib.suppress(PostgresMissingError):
        os.environ["HOLDFAST_TEST_POSTGRES"] = servers.enter_context(postgres_server()).url
    with contextlib.suppress(EmulatorMissingError):
        os.environ["HOLDFAST_TEST_FIRESTORE"] = servers.enter_context(firestore_emulator())


class _EngineCount:
    """Counts, where all reports arrive, the tests that asked for each engine."""

    def __init__(self, config: pytest.Config) -> None:
        self._ran = config.stash[_RAN]
        self._missing = config.stash[_MISSING]
        self._said = config.stash[_SAID]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = [(name, str(value)) for name, value in report.user_properties]
        if report.when == "call" and not report.skipped:
            self._ran.update({value for name, value in properties if name == "engine"})
            self._said += [value for name, value in properties if name == "said"]
        if report.when == "setup":
            self._missing.update(_values_of("engine-missing", properties))


def _values_of(name: str, properties: list[tuple[str, str]]) -> dict[str, str]:
    found = [value.partition(": ") for key, value in properties if key == name]
    return {engine: reason for engine, _, reason in found}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for engine, count in sorted(config.stash[_RAN].items()):
        terminalreporter.write_line(f"engine {engine}: ran {count} tests")
    said: list[str] = config.stash[_SAID]
    for line in sorted(said):
        terminalreporter.write_line(line)
    for engine, reason in sorted(config.stash[_MISSING].items()):
        terminalreporter.write_line(f"ENGINE {engine.upper()} DID NOT RUN: {reason}", red=True, bold=True)


def _absent(request: pytest.FixtureRequest, engine: str, reason: str) -> None:
    """Skip loudly on a person's machine; fail where green must mean that every engine ran."""
    request.node.user_properties.append(("engine-missing", f"{engine}: {reason}"))
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _uses(request: pytest.FixtureRequest, engine: str) -> None:
    request.node.user_properties.append(("engine", engine))


@pytest.fixture(scope="session")
def _postgres() -> Iterator[tuple[PostgresServer, str] | PostgresMissingError]:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except PostgresMissingError as missing:
            yield missing
        else:
            yield server, f"postgres ({postgres_version(server)})"


@pytest.fixture(scope="session")
def _firestore() -> Iterator[str | EmulatorMissingError]:
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(firestore_emulator())
        except EmulatorMissingError as missing:
            yield missing
        else:
            yield address


@pytest.fixture(scope="session", autouse=True)
def _quick_passwords() -> Iterator[None]:
    """Hashing takes long on purpose; what is kept, and what fits it, is the same with little work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_applications() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        cache_signatures(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_migrations() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        fill_stores_of_runtimes(patch)
        yield
    asyncio.run(TEMPLATES.drop())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a SQLite file that is not there yet."""
    _uses(request, "sqlite")
    return f"sqlite:///{tmp_path / 'holdfast.db'}"


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that connections to SQLite execute which are opened from now on."""
    executed: list[str] = []

    def note(cursor: object, statement: str, values: object) -> bool:
        executed.append(statement)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    monkeypatch.setattr(apsw, "connection_hooks", [hook])
    return executed


@pytest.fixture
def postgres_url(
    request: pytest.FixtureRequest, _postgres: tuple[PostgresServer, str] | PostgresMissingError
) -> Iterator[str]:
    """The URL of an empty database on the run's shared server."""
    if isinstance(_postgres, PostgresMissingError):
        _absent(request, "postgres", str(_postgres))
        return
    server, label = _postgres
    _uses(request, label)
    with fresh_database(server) as url:
        yield url


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[OwnPostgresServer]:
    """A server of the test's own, to stop, restart and kill."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server(own=True))
        except PostgresMissingError as missing:
            _absent(request, "postgres", str(missing))
        assert isinstance(server, OwnPostgresServer)
        _uses(request, f"postgres ({postgres_version(server)})")
        yield server


@pytest.fixture
def firestore_url(request: pytest.FixtureRequest, _firestore: str | EmulatorMissingError) -> str:
    """The URL of an empty project in the run's shared emulator."""
    if isinstance(_firestore, EmulatorMissingError):
        _absent(request, "firestore", str(_firestore))
    _uses(request, "firestore (emulator)")
    return f"firestore://proj-{secrets.token_hex(6)}?emulator={_firestore}"
