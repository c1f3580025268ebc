"""`holdfast schema` on real files and databases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import apsw
import asyncpg
import pytest

from holdfast.cli.schema import ALL_FORMATS
from holdfast.model import schema_of
from holdfast.model.export import FORMATS, export
from tests.cli.terminal import Typed, typed
from tests.examples.calendar_sync import WatchChannel

EXAMPLES = ["--models", "tests.examples.calendar_sync", "--models", "tests.examples.gwi"]
CHANNELS = ["--models", "tests.examples.calendar_sync:WatchChannel"]

MODELS = """
from holdfast.model import Document, Index, document

@document("orders/{{id}}", indexes=[{indexes}])
class Order(Document):
    id: str
    state: str = "open"
    total: int = 0
"""


def _schema(folder: Path, *arguments: str) -> Typed:
    # Wide enough that messages stay on one line.
    return typed(folder, "schema", *arguments, COLUMNS="300", HOLDFAST_HOME=str(folder))


def _schema_anew(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which reads models as they are now."""
    environ = {**os.environ, "HOLDFAST_HOME": str(folder)}
    command = [sys.executable, "-m", "holdfast", "schema", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=environ)


@pytest.mark.parametrize("format", FORMATS)
def test_export_prints_what_the_format_gives(tmp_path: Path, format: str) -> None:
    done = _schema(tmp_path, "export", "--format", format, *CHANNELS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == export([schema_of(WatchChannel)], format)


def test_exported_sql_runs_in_sqlite_and_makes_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "tables.sql"
    done = _schema(tmp_path, "export", "--format", "sql-sqlite", *EXAMPLES, "--out", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    database = apsw.Connection(":memory:")
    database.execute(file.read_text())
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"watchChannels", "gwi_runs", "gwi_runs__steps", "gwi_memberships"} <= tables
    database.close()


def test_export_of_all_classes_of_a_module_or_one(tmp_path: Path) -> None:
    one = _schema(tmp_path, "export", "--format", "markdown", *CHANNELS).stdout
    both = _schema(tmp_path, "export", "--format", "markdown", *EXAMPLES).stdout
    assert one.count("\n## ") == 1
    assert "\n## Run\n" in both
    assert "\n## WatchChannel\n" in both


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "--format", "excel", *CHANNELS], f"'excel' is none of {', '.join(ALL_FORMATS)}"),
        (["export", *CHANNELS], "--format"),
        (["export", "--format", "markdown", "--models", "no.such"], "there is no module 'no.such'"),
        (["export", "--format", "markdown", "--models", "json"], "json declares no document classes"),
        (["diff", "--models", "tests.examples.gwi:Nobody"], "declares no document class 'Nobody'"),
        (["diff", "--models", ""], "is no module's name"),
        (["unknown"], "unknown"),
    ],
)
def test_wrong_usage_ends_with_exit_2_and_says_why(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = _schema(tmp_path, *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export", "--format", "firestore-rules", "--models", "tests.examples.gwi_runs:Run"], "membership="),
        (["export", "--format", "markdown", *CHANNELS, "--out", "no/such/folder.md"], "can't write"),
        (["diff", *CHANNELS, "--store", "cobol://x"], "no engine for 'cobol'"),
    ],
)
def test_what_can_not_be_done_ends_with_exit_1_and_one_line(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    done = _schema(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_diff_tells_migrate_does_and_then_there_is_nothing_to_do(tmp_path: Path, sqlite_url: str) -> None:
    where = [*EXAMPLES, "--store", sqlite_url]
    told = _schema(tmp_path, "diff", *where)
    assert (told.returncode, told.stderr) == (0, "")
    assert "create table watchChannels" in told.stdout
    assert _schema(tmp_path, "diff", *where, "--check").returncode == 1
    done = _schema(tmp_path, "migrate", *where)
    assert (done.returncode, done.stdout) == (0, told.stdout)
    again = _schema(tmp_path, "diff", *where, "--check")
    assert (again.returncode, again.stdout) == (0, "nothing to do: the store is as declared\n")
    assert _schema(tmp_path, "migrate", *where).stdout == again.stdout


def test_a_new_index_is_told_and_made(tmp_path: Path, sqlite_url: str) -> None:
    models = tmp_path / "shop.py"
    where = ["--models", "shop", "--store", sqlite_url]
    models.write_text(MODELS.format(indexes='Index("state")'))
    assert _schema_anew(tmp_path, "migrate", *where).returncode == 0
    models.write_text(MODELS.format(indexes='Index("state"), Index("state", "-total")'))
    told = json.loads(_schema_anew(tmp_path, "diff", *where, "--json").stdout)
    assert any("state_total_desc" in change for change in told["changes"])
    assert not any("create table orders" in change for change in told["changes"])
    assert json.loads(_schema_anew(tmp_path, "migrate", *where, "--json").stdout) == told
    assert json.loads(_schema_anew(tmp_path, "diff", *where, "--json").stdout) == {"changes": []}


@pytest.mark.parametrize("command", ["export", "diff", "migrate"])
def test_help_teaches_by_example(tmp_path: Path, command: str) -> None:
    done = _schema(tmp_path, command, "--help")
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"holdfast schema {command} --" in done.stdout


async def test_exported_sql_runs_in_postgres_and_makes_protected_tables(
    tmp_path: Path, postgres_url: str
) -> None:
    done = _schema(tmp_path, "export", "--format", "sql-postgres", *EXAMPLES)
    assert (done.returncode, done.stderr) == (0, "")
    link = await asyncpg.connect(postgres_url)
    try:
        await link.execute(done.stdout)
        rows = await link.fetch("SELECT relname, relrowsecurity FROM pg_class WHERE relkind = 'r'")
    finally:
        await link.close()
    protected = {row["relname"] for row in rows if row["relrowsecurity"]}
    assert {"gwi_runs", "gwi_runs__steps", "gwi_memberships", "gwi_tenants"} <= protected
