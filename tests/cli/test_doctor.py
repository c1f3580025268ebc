"""`holdfast doctor`: each fault is planted for real, found by name, and comes with what to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.request import Request, urlopen

import asyncpg
import pytest
import structlog
from typer.testing import CliRunner

from holdfast.app import open_store
from holdfast.cli import app
from holdfast.config import load_config
from holdfast.kit.access import Tokens
from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint, EndpointSecrets, new_secret
from holdfast.kit.releases import Release
from holdfast.kit.vault import new_key
from holdfast.runtime import Runtime, documents_of, find_services, vault_of
from holdfast.store import create, put

_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def _run(home: Path, *, prefix: tuple[str, ...] = (), **environment: str) -> dict[str, Any]:
    """What the doctor says in this folder; exit code 0 exactly when all is fine, and never a traceback."""
    variables = {"HOLDFAST_PORT": "0", "PATH": "/usr/bin:/bin", **environment}
    apart = prefix or "PYTHONPATH" in environment
    told, code = _alone(home, variables, prefix) if apart else _here(home, variables)
    found: dict[str, Any] = json.loads(told)
    assert code == (0 if found["fine"] else 1)
    return found


def _here(home: Path, variables: dict[str, str]) -> tuple[str, int]:
    before = structlog.get_config()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name in [one for one in os.environ if one.startswith(("HOLDFAST_", "PORT"))]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", None)
        done = CliRunner().invoke(app, ["doctor", "--json"])
    structlog.configure(**before)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.stdout, done.exit_code


def _alone(home: Path, variables: dict[str, str], prefix: tuple[str, ...]) -> tuple[str, int]:
    """In a process of its own, where other packages or another disk are to be seen."""
    command = [*prefix, sys.executable, "-m", "holdfast", "doctor", "--json"]
    done = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.stdout, done.returncode


def _faults(told: dict[str, Any]) -> list[str]:
    """Names of the faults, but for services that were given no settings here."""
    unset = {f"settings of {service.address}" for service in find_services()}
    return [one["name"] for one in told["findings"] if not one["fine"] and one["name"] not in unset]


def _fault(home: Path, name: str, **environment: Any) -> str:
    """Message and remedy of the fault of this name, which must be there."""
    told = _run(home, **environment)
    assert not told["fine"]
    (found,) = [one for one in told["findings"] if one["name"] == name]
    assert not found["fine"], found
    assert found["remedy"]
    return f"{found['message']} | {found['remedy']}"


async def _nothing(runtime: Runtime) -> None:
    return None


def _keep(home: Path, act: Callable[[Runtime], Awaitable[None]], *, admin: bool = True) -> None:
    """Make a sound store in the folder and do something to it."""

    async def run() -> None:
        config = load_config({"home": home / ".holdfast"}, environ={})
        store = await open_store(config.store, documents_of(find_services()))
        try:
            await store.migrate()
            runtime = Runtime(config, store, [], vault=vault_of(config))
            if admin:
                await Tokens(store).create("admin", role="admin")
            await act(runtime)
        finally:
            await store.close()

    (home / ".holdfast").mkdir()
    asyncio.run(run())


@pytest.fixture(scope="module")
def _sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    _keep(folder, _nothing)
    return folder


@pytest.fixture
def home(tmp_path: Path, _sound: Path) -> Path:
    """A folder whose store is as it should be."""
    shutil.copytree(_sound / ".holdfast", tmp_path / ".holdfast")
    return tmp_path


def _contents(file: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(file)) as link:
        return list(link.iterdump())


def test_a_sound_installation_has_no_faults_and_looking_changes_nothing(home: Path) -> None:
    before = _contents(home / ".holdfast" / "holdfast.db")
    assert _faults(_run(home)) == []
    assert _contents(home / ".holdfast" / "holdfast.db") == before


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "holdfast serve" in _fault(tmp_path, "store")
    assert not (tmp_path / ".holdfast").exists()


# -- settings -------------------------------------------------------------------------------------


def test_a_setting_that_can_not_be_read(home: Path) -> None:
    assert "whole number" in _fault(home, "settings", HOLDFAST_PORT="many")


def test_an_unknown_setting_with_the_one_that_was_meant(home: Path) -> None:
    (home / "holdfast.toml").write_text('publc_url = "https://hooks.example.com"\n')
    assert "did you mean public_url?" in _fault(home, "settings")


def test_missing_keys_in_production(tmp_path: Path) -> None:
    assert "HOLDFAST_KEYS" in _fault(tmp_path, "keys", HOLDFAST_ENV="production")


def test_a_short_key(home: Path) -> None:
    assert "short" in _fault(home, "keys", HOLDFAST_KEYS="k1:c2hvcnQ=")


def test_a_key_that_is_not_random(home: Path) -> None:
    assert "not random" in _fault(home, "keys", HOLDFAST_KEYS="k1:" + "QUFB" * 11)


def test_the_same_key_under_two_names(home: Path) -> None:
    key = new_key("k1")
    assert "same key" in _fault(home, "keys", HOLDFAST_KEYS=f"{key},{key.replace('k1:', 'k2:')}")


def test_a_keys_file_that_others_can_read(home: Path) -> None:
    (home / ".holdfast" / "keys").chmod(0o644)
    assert "chmod 600" in _fault(home, "keys file")


def test_a_settings_file_with_secrets_that_everybody_can_read(home: Path) -> None:
    (home / "holdfast.toml").write_text('[services.mail]\npassword = "hunter2"\n')
    (home / "holdfast.toml").chmod(0o644)
    assert "chmod 640" in _fault(home, "settings file")
    assert "hunter2" not in json.dumps(_run(home))


def test_a_network_that_is_none(home: Path) -> None:
    assert "10.20.0.0/16" in _fault(home, "allow", HOLDFAST_ALLOW="10.0.0.0/99")


def test_a_service_setting_that_does_not_fit(home: Path) -> None:
    _install_service(home)
    (home / "holdfast.toml").write_text("[services.probe]\nretries = 'often'\n")
    assert "[services.probe]" in _fault(home, "settings of probe", PYTHONPATH=str(home))


def test_settings_of_a_service_that_is_not_there(home: Path) -> None:
    (home / "holdfast.toml").write_text("[services.calender_sync]\nmappings = 'm.csv'\n")
    told = _fault(home, "settings of calender_sync")
    assert "there is no service of that name" in told
    assert "calendar_sync" in told


# -- the machine ----------------------------------------------------------------------------------


def test_a_home_that_can_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "HOLDFAST_HOME" in _fault(tmp_path, "home", HOLDFAST_HOME=str(tmp_path / "file"))


def test_a_home_in_a_temporary_folder_in_production(home: Path) -> None:
    variables = {"TMPDIR": str(home), "HOLDFAST_ENV": "production", "HOLDFAST_KEYS": new_key("k1")}
    assert "temporary" in _fault(home, "home", **variables)


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    inside = ("unshare", "--user", "--map-root-user", "--mount")
    mount = f"mkdir -p {tmp_path}/small && mount -t tmpfs -o size=8m tmpfs {tmp_path}/small"
    if shutil.which("unshare") is None or subprocess.run([*inside, "sh", "-c", mount]).returncode:
        pytest.skip("THE DISK CHECK IS NOT TESTED: this machine lets nobody mount a small disk")
    prefix = (*inside, "sh", "-c", f'{mount} && exec "$@"', "sh")
    assert "make room" in _fault(tmp_path, "disk", prefix=prefix, HOLDFAST_HOME=str(tmp_path / "small"))


def test_a_port_that_something_else_holds(home: Path) -> None:
    with _public(datetime.now(UTC), b"<h1>It works!</h1>") as url:
        assert "--port" in _fault(home, "port", HOLDFAST_PORT=url.rpartition(":")[2])


# -- the public address ---------------------------------------------------------------------------


@contextlib.contextmanager
def _public(date: datetime, body: bytes = b'{"status": "ok", "version": "0.1.0"}') -> Iterator[str]:
    """Something that answers as a server behind a proxy would, with its own idea of the time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date.strftime("%a, %d %b %Y %H:%M:%S GMT")

        def log_message(self, format: str, *arguments: Any) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_public_address_that_answers_on_time_is_fine(home: Path) -> None:
    with _public(datetime.now(UTC)) as url:
        assert _faults(_run(home, HOLDFAST_PUBLIC_URL=url)) == []


def test_a_clock_apart_from_the_public_address(home: Path) -> None:
    with _public(datetime.now(UTC) - timedelta(hours=1)) as url:
        assert "NTP" in _fault(home, "clock skew", HOLDFAST_PUBLIC_URL=url)


def test_a_public_address_where_somebody_else_answers(home: Path) -> None:
    with _public(datetime.now(UTC), b"<h1>It works!</h1>") as url:
        assert "proxy" in _fault(home, "public URL", HOLDFAST_PUBLIC_URL=url)


@pytest.mark.parametrize(
    ("url", "environment", "word"),
    [
        ("http://127.0.0.1:1", "development", "does not answer"),
        ("http://hooks.example.com", "development", "not encrypted"),
        ("http://127.0.0.1:1", "production", "this is production"),
        ("hooks.example.com", "development", "https://"),
    ],
)
def test_a_public_address_that_no_provider_can_use(home: Path, url: str, environment: str, word: str) -> None:
    told = _run(home, HOLDFAST_ENV=environment, HOLDFAST_PUBLIC_URL=url)
    found = [one for one in told["findings"] if not one["fine"] and one["name"] in ("public URL", "settings")]
    assert [one for one in found if word in one["message"] + one["remedy"]], told


# -- the store ------------------------------------------------------------------------------------


def test_a_store_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "HOLDFAST_STORE" in _fault(tmp_path, "store", HOLDFAST_STORE="sqlite:///folder")


def test_a_store_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("dear diary, today I lost a webhook. " * 500)
    assert "HOLDFAST_STORE" in _fault(tmp_path, "store", HOLDFAST_STORE="sqlite:///notes.db")


def test_a_server_that_can_not_be_reached(home: Path) -> None:
    assert "HOLDFAST_STORE" in _fault(
        home, "store", HOLDFAST_STORE="postgresql://127.0.0.1:1/none?patience_s=0.2"
    )


def test_a_password_that_is_wrong(home: Path, postgres_url: str) -> None:
    asyncio.run(_want_password(postgres_url))
    url = f"postgresql://doctored:guess@{postgres_url.partition('://')[2].rpartition('@')[2]}"
    told = _fault(home, "store", HOLDFAST_STORE=url)
    assert "correct the user and password" in told
    assert "guess" not in told


async def _want_password(url: str) -> None:
    """From now on the server wants a password of one person it knows."""
    link = await asyncpg.connect(url)
    try:
        await link.execute(
            "do $$ begin if not exists (select from pg_roles where rolname = 'doctored') "
            "then create role doctored login password 'right'; end if; end $$"
        )
        rules = Path(await link.fetchval("show hba_file"))
        rule = "host all doctored all scram-sha-256\nlocal all doctored scram-sha-256\n"
        if rule not in rules.read_text():
            rules.write_text(rule + rules.read_text())
            await link.execute("select pg_reload_conf()")
    finally:
        await link.close()


def test_a_database_that_is_not_there(home: Path, postgres_url: str) -> None:
    url = f"{postgres_url.rpartition('/')[0]}/nowhere"
    assert "createdb" in _fault(home, "store", HOLDFAST_STORE=url)


def test_an_old_schema(tmp_path: Path) -> None:
    (tmp_path / "old.db").touch()
    assert "holdfast serve" in _fault(tmp_path, "schema", HOLDFAST_STORE="sqlite:///old.db")


def test_a_store_that_a_newer_release_worked_on(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        await runtime.store.privileged().commit(put(Release(version="99.1.0", at=_LONG_AGO)))

    _keep(tmp_path, act)
    assert "holdfast>=99.1.0" in _fault(tmp_path, "release")


# -- what is kept ---------------------------------------------------------------------------------


def test_nobody_who_may_do_everything(tmp_path: Path) -> None:
    _keep(tmp_path, _nothing, admin=False)
    assert "tokens create" in _fault(tmp_path, "admin")


def test_secrets_that_the_keys_do_not_open(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        made = Endpoint(id="there", tenant_id="acme", url="https://rms.example", created_at=_LONG_AGO)
        made.secrets = [EndpointSecrets(runtime.vault).seal(made, new_secret())]
        await runtime.store.tenant("acme").commit(create(made))

    _keep(tmp_path, act)
    assert _faults(_run(tmp_path)) == []
    assert "put the key" in _fault(tmp_path, "sealed secrets", HOLDFAST_KEYS=new_key("other"))


def test_due_work_that_nobody_does(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        delivery = Delivery(
            id="e1~rms", tenant_id="acme", event_id="e1", endpoint_id="rms", event_type="paid", body=b"{}",
            occurred_at=_LONG_AGO, created_at=_LONG_AGO, next_attempt_at=_LONG_AGO,
        )  # fmt: skip
        await runtime.store.tenant("acme").commit(create(delivery))

    _keep(tmp_path, act)
    assert "holdfast work" in _fault(tmp_path, "backlog")


def test_dead_letters_that_wait_for_somebody(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        letter = DeadLetter(
            id="e1~rms", tenant_id="acme", event_id="e1", endpoint_id="rms", event_type="paid", reason="no",
            died_at=_LONG_AGO,
        )  # fmt: skip
        await runtime.store.tenant("acme").commit(create(letter))

    _keep(tmp_path, act)
    assert "holdfast dlq" in _fault(tmp_path, "dead letters")


# -- services -------------------------------------------------------------------------------------


def _install_service(home: Path) -> None:
    """A service of another package, whose provider takes only one token."""
    (home / "probe.py").write_text(
        dedent("""
        import msgspec
        from holdfast.errors import ReauthRequiredError
        from holdfast.service import Finding, Parts, Service

        class Settings(msgspec.Struct):
            token: str = "wrong"
            retries: int = 3

        def build(context):
            async def credentials():
                if context.settings.token != "right":
                    raise ReauthRequiredError("the provider refuses the token of [services.probe]")
                return Finding("probe credentials", True, "taken")

            return Parts(checks=[credentials])

        service = Service(name="probe", summary="Probes.", documents=[], build=build, settings=Settings)
        """)
    )
    info = home / "probe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[holdfast.services]\nprobe = probe:service\n")


def test_credentials_that_a_provider_refuses(home: Path) -> None:
    _install_service(home)
    assert "refuses the token" in _fault(home, "probe", PYTHONPATH=str(home))
    assert _faults(_run(home, PYTHONPATH=str(home), HOLDFAST_PROBE_TOKEN="right")) == []


@contextlib.contextmanager
def _simulated_google(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "holdfast", "simulators", "run", "google", "--port", "0"]
    with subprocess.Popen(command, cwd=home, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[4]
        finally:
            process.kill()


def _cause(url: str, command: str, **body: Any) -> Any:
    request = Request(f"{url}/_control/{command}", data=json.dumps(body).encode())
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_credentials_that_google_refuses(home: Path) -> None:
    with _simulated_google(home) as url:
        key = _cause(url, "service-accounts", name="holdfast")
        (home / "key.json").write_text(json.dumps(key))
        (home / "map.csv").write_text("alice@hoge.jp,alice@fuga.jp,active\n")
        settings: Any = {
            "HOLDFAST_CALENDAR_SYNC_SERVICE_ACCOUNT": str(home / "key.json"),
            "HOLDFAST_CALENDAR_SYNC_MAPPINGS": str(home / "map.csv"),
        }
        assert "calendar-sync credentials" not in _faults(_run(home, **settings))
        assert "public_url" in _fault(home, "calendar-sync address", **settings)
        reached: Any = settings | {"HOLDFAST_CALENDAR_SYNC_WEBHOOK_URL": "https://hooks.example.com/webhook"}
        assert "calendar-sync address" not in _faults(_run(home, **reached))
        _cause(url, "revoke", email=key["client_email"])
        assert "service_account" in _fault(home, "calendar-sync credentials", **settings)
        # And nobody works with them.
        assert "mappings" in _fault(home, "health of calendar-sync", **settings)


def test_the_reference_names_every_finding(home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "doctor.md").read_text(encoding="utf-8")
    addresses = [service.address for service in find_services()]
    with _public(datetime.now(UTC)) as url:
        for one in _run(home, HOLDFAST_PUBLIC_URL=url)["findings"]:
            names = {one["name"], *(one["name"].replace(a, "NAME") for a in addresses)}
            assert any(f"`{name}`" in page for name in names), one["name"]
