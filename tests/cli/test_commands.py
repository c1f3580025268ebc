"""Every command: its help teaches, wrong usage is told; and the commands about the store, for real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from holdfast.cli import app

_HOLDFAST = [sys.executable, "-m", "holdfast"]
# What these print is a file, a stream or a life, not data.
_WITHOUT_JSON = {
    ("serve",), ("work",), ("demo",), ("simulators", "run"), ("schema", "export"), ("audit", "export"),
}  # fmt: skip


def _walk(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(command, TyperGroup):
        for name, sub in command.commands.items():
            yield from _walk(sub, (*words, name))
    else:
        yield words, command


_COMMANDS = dict(_walk(typer.main.get_command(app)))


def _run(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"HOLDFAST_PORT": "0", "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(
        [*_HOLDFAST, *arguments], cwd=home, env=variables, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_help_teaches_by_example(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, "--help"])
    assert told.exit_code == 0
    assert "Example" in told.output
    assert f"holdfast {words[0]}" in told.output


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_what_prints_data_prints_json_when_asked(words: tuple[str, ...]) -> None:
    options = {option for one in getattr(_COMMANDS[words], "params", ()) for option in one.opts}
    assert ("--json" in options) == (words not in _WITHOUT_JSON)


@pytest.mark.parametrize("words", [(), *_COMMANDS], ids=lambda words: " ".join(words) or "holdfast")
def test_an_unknown_option_is_wrong_usage(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, "--no-such-option"])
    assert told.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokens", "create", "x", "--role", "king"],
        ["tokens", "create", "x", "--role", "admin", "--expires-in", "soon"],
        ["deliveries", "list", "--status", "lost"],
        ["inbox", "list", "--status", "lost"],
        ["usage", "show", "--month", "November"],
        ["jobs", "list", "--limit", "0"],
    ],
)
def test_a_wrong_value_is_wrong_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_a_token_is_made_listed_without_itself_and_revoked(tmp_path: Path) -> None:
    made = _run(
        tmp_path, "tokens", "create", "ops", "--role", "viewer", "--tenant", "acme", "--expires-in", "90d",
        "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)["token"]
    (row,) = json.loads(_run(tmp_path, "tokens", "list", "--json").stdout)["items"]
    assert (row["name"], row["role"], row["tenantId"], row["revokedAt"]) == ("ops", "viewer", "acme", None)
    assert token.startswith(f"hf_{row['id']}")
    assert token not in json.dumps(row)
    assert "hash" not in row
    assert _run(tmp_path, "tokens", "revoke", row["id"]).returncode == 0
    (row,) = json.loads(_run(tmp_path, "tokens", "list", "--json").stdout)["items"]
    assert row["revokedAt"]
    trail = "".join(_run(tmp_path, "audit", "export", "--tenant", id).stdout for id in ("-", "acme"))
    assert [json.loads(line)["action"] for line in trail.splitlines()] == ["token.revoked", "token.created"]
    assert token not in trail
    unknown = _run(tmp_path, "tokens", "revoke", "aaaaaaaaaaaaaaaa")
    assert (unknown.returncode, unknown.stderr) == (1, "holdfast: no token 'aaaaaaaaaaaaaaaa'\n")


def test_a_backup_is_a_store_with_what_was_kept_and_never_overwrites(tmp_path: Path) -> None:
    _run(tmp_path, "tokens", "create", "kept", "--role", "admin")
    done = _run(tmp_path, "backup", "copy.db", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] == (tmp_path / "copy.db").stat().st_size
    listed = _run(tmp_path, "tokens", "list", "--json", HOLDFAST_STORE="sqlite:///copy.db")
    assert [row["name"] for row in json.loads(listed.stdout)["items"]] == ["kept"]
    again = _run(tmp_path, "backup", "copy.db")
    assert again.returncode == 1
    assert "exists already" in again.stderr


def test_a_backup_of_another_engine_says_what_to_use(tmp_path: Path, postgres_url: str) -> None:
    done = _run(tmp_path, "backup", "copy.db", HOLDFAST_STORE=postgres_url)
    assert done.returncode == 1
    assert "pg_dump" in done.stderr
    assert not (tmp_path / "copy.db").exists()
