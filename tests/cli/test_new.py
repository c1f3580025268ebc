"""`holdfast new`: what it makes is served by a real process, answers, and passes its own test."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner

import holdfast
from holdfast import services
from holdfast.cli import app
from holdfast.cli.new import PATHS
from holdfast.config import load_config
from holdfast.console import routes
from holdfast.http.app import create_app
from holdfast.http.guard import declared_routes
from holdfast.kit.inbox import StandardWebhooksVerifier
from holdfast.kit.outbox import WebhookSigner, new_secret
from holdfast.runtime import Runtime
from tests.cli.terminal import Typed, typed

_HOLDFAST = [sys.executable, "-m", "holdfast"]
_SECRET = new_secret()
_SOURCE = Path(holdfast.__file__).parents[1]


def _new(home: Path, *arguments: str) -> Typed:
    return typed(home, "new", *arguments)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("new")
    done = _new(home, "parcel_watch", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert "src/parcel_watch/models.py" in made["files"]
    _announce(home / "parcel-watch")
    return home / "parcel-watch"


def _announce(project: Path) -> None:
    """What an install leaves behind beside the package: the entry points of its pyproject."""
    told = tomllib.loads((project / "pyproject.toml").read_text())
    info = project / "src" / "parcel_watch-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parcel-watch\nVersion: 0.1.0\n")
    lines = [
        line
        for group, entries in told["project"]["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def _environment(project: Path, home: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{project}/src:{_SOURCE}", "HOLDFAST_HOME": str(home),
        "HOLDFAST_PARCEL_WATCH_SECRET": _SECRET,
    }  # fmt: skip


@contextmanager
def _serving(project: Path, home: Path) -> Iterator[str]:
    command = [*_HOLDFAST, "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=project, env=_environment(project, home), stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            address = re.search(r"http://\S+", line)
            assert address is not None, line + process.stderr.read()
            yield address[0]
        finally:
            process.kill()


def _ask(url: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, Any]:
    with urlopen(Request(url, data=body, headers=headers), timeout=60) as answer:
        text = answer.read()
        return answer.status, json.loads(text) if text else None


def test_it_is_served_takes_webhooks_and_answers(project: Path, tmp_path: Path) -> None:
    made = _run(project, tmp_path, "tokens", "create", "me", "--role", "developer", "--json")
    caller = {"authorization": f"Bearer {made['token']}", "content-type": "application/json"}
    with _serving(project, tmp_path) as url:
        status, item = _ask(f"{url}/parcel-watch/api/v1/items", caller, b'{"text": "by hand"}')
        assert (status, item["text"]) == (201, "by hand")
        body = b'{"text": "by webhook"}'
        signed = dict(WebhookSigner([_SECRET]).headers("m1", int(time.time()), body))
        assert _ask(f"{url}/parcel-watch/webhook", signed, body)[0] == 202
        end = time.monotonic() + 20
        while len(items := _ask(f"{url}/parcel-watch/api/v1/items", caller)[1]["items"]) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert [one["text"] for one in items] == ["by webhook", "by hand"]
        status, closed = _ask(f"{url}/parcel-watch/api/v1/items/{item['id']}/close", caller, b"")
        assert (status, closed["status"]) == (200, "closed")
        with urlopen(Request(f"{url}/console/parcel-watch", headers=caller), timeout=60) as page:
            text = page.read().decode()
        assert "by webhook" in text
        assert "<h1>Parcel watch</h1>" in text
        paths = _ask(f"{url}/openapi.json", caller)[1]["paths"]
    foreign = _foreign()
    assert [address for address in foreign if f"/{address}" in text] == []
    assert [path for path in paths if path.split("/")[1] in foreign] == []
    assert _own_tables(tmp_path / "holdfast.db") == {"parcel_watch_items"}


def _foreign() -> list[str]:
    return [name.replace("_", "-") for name in services.folders()]


def _own_tables(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as database:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name for (name,) in rows if not name.startswith(("holdfast_", "_holdfast", "sqlite_"))}


def test_a_project_has_its_own_collections_and_commands_beside_the_platforms(
    project: Path, tmp_path: Path
) -> None:
    steps = _run(project, tmp_path, "schema", "diff", "--json")["changes"]
    tables = {step.removeprefix("create table ") for step in steps if step.startswith("create table ")}
    assert "holdfast_deliveries" in tables
    assert {table for table in tables if not table.startswith("holdfast_")} == {"parcel_watch_items"}
    told = subprocess.run(
        [*_HOLDFAST, "--help"], cwd=project, env=_environment(project, tmp_path), capture_output=True,
        text=True,
    )  # fmt: skip
    assert "parcel-watch" in told.stdout
    assert [address for address in _foreign() if address in told.stdout] == []


def test_its_commands_act_and_are_on_the_audit_trail(project: Path, tmp_path: Path) -> None:
    item = _run(project, tmp_path, "parcel-watch", "add", "typed", "--json")
    assert _run(project, tmp_path, "parcel-watch", "close", item["id"], "--json")["status"] == "closed"
    (listed,) = _run(project, tmp_path, "parcel-watch", "list", "--json")["items"]
    assert (listed["text"], listed["status"]) == ("typed", "closed")
    trail = _run(project, tmp_path, "audit", "list", "--json")["items"]
    assert {one["action"] for one in trail} == {"parcel_watch.item_added", "parcel_watch.item_closed"}


def _run(project: Path, home: Path, *words: str) -> Any:
    done = subprocess.run(
        [*_HOLDFAST, *words], cwd=project, env=_environment(project, home), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_its_own_test_passes(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=project, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_the_secret_that_its_readme_makes_is_one(project: Path) -> None:
    (line,) = [
        line for line in (project / "README.md").read_text().splitlines() if line.startswith("export ")
    ]
    told = subprocess.run(
        ["/bin/sh", "-c", f"{line}\nprintenv HOLDFAST_PARCEL_WATCH_SECRET"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Refuses what is no secret.
    StandardWebhooksVerifier(told.stdout.strip())


def test_what_it_makes_is_well_written(project: Path) -> None:
    ruff = [sys.executable, "-m", "ruff"]
    rules = ["--isolated", "--line-length", "110"]
    for command in (["check", "--select", "E,F,W,B,UP"], ["format", "--check"]):
        done = subprocess.run([*ruff, *command, *rules, "."], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "parcel-watch").mkdir()
    (tmp_path / "parcel-watch" / "mine.txt").write_text("mine")
    done = _new(tmp_path, "parcel-watch")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert [file.name for file in tmp_path.rglob("*")] == ["parcel-watch", "mine.txt"]


_UNFIT = ["9lives", "Parcel", "class", "a/b", "x" * 41, "holdfast", "naïve", "parcel_", "parcel__watch"]
_TAKEN = ["email", "json", "msgspec", "api", "console", "sign-in", "deliveries", "dead-letters", "serve"]


@pytest.mark.parametrize("name", [*_UNFIT, *_TAKEN])
def test_a_name_that_does_not_fit_is_wrong_usage(tmp_path: Path, name: str) -> None:
    assert CliRunner().invoke(app, ["new", name, "--into", str(tmp_path)]).exit_code == 2
    assert list(tmp_path.iterdir()) == []


async def test_no_service_is_made_at_a_path_that_is_served_already(tmp_path: Path) -> None:
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}), services=[])
    try:
        served = declared_routes(create_app(runtime, more=routes(runtime)).app)
        first = {path.split("/")[1].replace("-", "_") for path, _, _ in served}
    finally:
        await runtime.close()
    assert {word for word in first if word.isidentifier()} <= set(PATHS)


def test_a_place_that_can_not_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = _new(tmp_path, "parcel_watch", "--into", str(tmp_path / "file" / "below"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
