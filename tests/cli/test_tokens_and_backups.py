"""Tokens and backups at the terminal, and errors that are known: one line and exit 1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.errors import HoldfastError
from tests.cli.terminal import typed


def test_a_token_is_made_listed_without_itself_and_revoked(tmp_path: Path) -> None:
    made = typed(
        tmp_path, "tokens", "create", "ops", "--role", "viewer", "--tenant", "acme", "--expires-in", "90d",
        "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)["token"]
    (row,) = json.loads(typed(tmp_path, "tokens", "list", "--json").stdout)["items"]
    assert (row["name"], row["role"], row["tenantId"], row["revokedAt"]) == ("ops", "viewer", "acme", None)
    assert token.startswith(f"hf_{row['id']}")
    assert token not in json.dumps(row)
    assert "hash" not in row
    assert typed(tmp_path, "tokens", "revoke", row["id"]).returncode == 0
    (row,) = json.loads(typed(tmp_path, "tokens", "list", "--json").stdout)["items"]
    assert row["revokedAt"]
    trail = "".join(typed(tmp_path, "audit", "export", "--tenant", id).stdout for id in ("-", "acme"))
    assert [json.loads(line)["action"] for line in trail.splitlines()] == ["token.created", "token.revoked"]
    assert token not in trail
    unknown = typed(tmp_path, "tokens", "revoke", "aaaaaaaaaaaaaaaa")
    assert (unknown.returncode, unknown.stderr) == (1, "holdfast: no token 'aaaaaaaaaaaaaaaa'\n")


def test_an_error_that_is_known_is_one_line_and_exit_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "tokens", "revoke", "aaaaaaaaaaaaaaaa"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "holdfast: no token 'aaaaaaaaaaaaaaaa'\n")


def test_a_password_that_is_no_text_is_an_error_that_is_known() -> None:
    told = CliRunner().invoke(app, ["users", "password", "ann"], input=b"a long \xff passphrase\n")
    assert isinstance(told.exception, HoldfastError), told.exception
    assert told.exception.message == "the password is not UTF-8"


def test_output_that_can_not_be_written_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "--version"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "holdfast: No space left on device\n")


def test_a_backup_of_a_store_that_is_not_there_is_refused_and_makes_neither(tmp_path: Path) -> None:
    told = typed(tmp_path, "backup", "copy.db", HOLDFAST_STORE=f"sqlite:///{tmp_path}/typo.db")
    assert told.returncode == 1
    assert "there is no store" in told.stderr
    assert "typo.db" in told.stderr
    assert not (tmp_path / "copy.db").exists()
    assert not (tmp_path / "typo.db").exists()


def test_a_backup_is_a_store_with_what_was_kept_and_never_overwrites(tmp_path: Path) -> None:
    typed(tmp_path, "tokens", "create", "kept", "--role", "admin")
    done = typed(tmp_path, "backup", "copy.db", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] == (tmp_path / "copy.db").stat().st_size
    listed = typed(tmp_path, "tokens", "list", "--json", HOLDFAST_STORE="sqlite:///copy.db")
    assert [row["name"] for row in json.loads(listed.stdout)["items"]] == ["kept"]
    again = typed(tmp_path, "backup", "copy.db")
    assert again.returncode == 1
    assert "already exists" in again.stderr


def test_a_backup_of_another_engine_says_what_to_use(tmp_path: Path, postgres_url: str) -> None:
    done = typed(tmp_path, "backup", "copy.db", HOLDFAST_STORE=postgres_url)
    assert done.returncode == 1
    assert "pg_dump" in done.stderr
    assert not (tmp_path / "copy.db").exists()
