"""`holdfast users`, and the link that the first start prints, as real processes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import structlog
from typer.testing import CliRunner, Result

from holdfast.cli import app
from holdfast.errors import HoldfastError
from holdfast.kit.access import Sessions, Users
from tests.console.console_harness import console

_HOLDFAST = [sys.executable, "-m", "holdfast"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def _run(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=typed)


def _told(*arguments: str, typed: str = "") -> Any:
    done = _run(*arguments, "--json", typed=typed)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_people_are_added_listed_disabled_and_given_passwords_and_links() -> None:
    added = _told("users", "add", "ann", "--role", "admin")
    assert re.fullmatch(r"http://127\.0\.0\.1:8000/sign-in/link\?code=[\w-]{43}", added["url"])
    assert _told("users", "link", "ann")["url"] != added["url"]
    assert _told("users", "password", "ann", typed="correct horse battery\n") == {"name": "ann"}
    assert _told("users", "sign-out", "ann") == {"signedOut": "ann"}
    assert _told("users", "disable", "ann") == {"disabled": "ann"}
    (row,) = _told("users", "list")["items"]
    assert (row["name"], row["role"], row["tenantId"]) == ("ann", "admin", "-")
    assert row["disabledAt"] is not None
    refused = _run("users", "link", "ann")
    assert (refused.exit_code, str(refused.exception)) == (1, "ann is disabled; enable them first")
    assert _told("users", "enable", "ann") == {"enabled": "ann"}
    events = [json.loads(line) for line in _run("audit", "export").stdout.splitlines()]
    assert [event["action"] for event in events if event["outcome"] == "failed"] == ["user.link_made"]
    assert [event["action"] for event in events if event["outcome"] == "done"] == [
        "user.added", "user.link_made", "user.password_set", "session.ended_everywhere", "user.disabled",
        "user.enabled",
    ]  # fmt: skip


async def test_who_is_signed_out_by_a_command_is_out_on_every_device(tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        here, there = await harness.signed_in("ann"), harness.visitor()
        user = await Users(harness.runtime.store).get("ann")
        cookie = await Sessions(harness.runtime.store).begin(user)
        there.session.cookie_jar.update_cookies({"holdfast_session": cookie}, harness.url)
        await there.page("/console")
        done = await asyncio.to_thread(_run, "users", "sign-out", "ann")
        assert done.exit_code == 0, done.output
        for visitor in (here, there):
            assert (await visitor.ask("GET", "/console"))[0] == 303
        assert (await asyncio.to_thread(_run, "users", "sign-out", "none")).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "typed", "code", "said"),
    [
        (["users", "add", "ann"], "", 2, "--role"),
        (["users", "add", "ann", "--role", "king"], "", 2, "is none of viewer, developer, admin, owner"),
        (["users", "add", "a b", "--role", "admin"], "", 1, "a name has 1 to 100"),
        (["users", "add", "ann", "--role", "admin", "--tenant", "a/b"], "", 1, "can't hold"),
        (["users", "disable", "nobody"], "", 1, "nobody is called 'nobody'"),
        (["users", "password", "ann"], "short\n", 1, "10 to 500 characters"),
    ],
    ids=["no role", "role", "name", "tenant", "unknown", "short"],
)
def test_wrong_usage_is_told_in_a_line(arguments: list[str], typed: str, code: int, said: str) -> None:
    done = _run(*arguments, typed=typed)
    assert done.exit_code == code
    assert said in " ".join((done.output + str(done.exception)).replace("│", "").split())
    assert isinstance(done.exception, (HoldfastError, SystemExit))


def test_the_first_start_prints_a_link_and_one_after_somebody_came_does_not(tmp_path: Path) -> None:
    first = _started(tmp_path)
    assert "nobody can sign in yet" in first
    _told("users", "add", "ann", "--role", "admin")
    assert "nobody can sign in yet" not in _started(tmp_path)


def _started(home: Path) -> str:
    """What a server says on its first lines; its link is opened before it stops."""
    command = [*_HOLDFAST, "serve", "--port", "0"]
    with subprocess.Popen(
        command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        try:
            assert one.stderr is not None
            assert one.stdout is not None
            address = re.search(r"http://\S+", one.stderr.readline())
            assert address is not None
            with urlopen(f"{address[0]}/health", timeout=60) as answer:
                assert answer.status == 200
            one.terminate()
            said = one.stdout.read()
            assert one.wait(10) == 0
            return said
        finally:
            one.kill()
