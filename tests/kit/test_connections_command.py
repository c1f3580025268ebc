"""`holdfast connections` as an operator types it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest
import structlog
from typer.testing import CliRunner, Result

from holdfast.cli import app
from holdfast.config import load_config
from holdfast.errors import HoldfastError, NotFoundError, ReauthRequiredError, RetryLaterError
from holdfast.kit.audit import Audit
from holdfast.kit.connections import ConsentPurpose
from holdfast.kit.vault import new_key
from holdfast.runtime import Runtime, runtime
from holdfast.service import Context, Parts, Service
from holdfast.testing import ManualClock
from tests.kit.fake_oauth_provider import FakeOAuthProvider

T = TypeVar("T")


@pytest.fixture
def registrar() -> FakeOAuthProvider:
    return FakeOAuthProvider(ManualClock())


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registrar: FakeOAuthProvider) -> None:
    """An installation with one service, at whose provider people connect."""

    def build(context: Context) -> Parts:
        purpose = ConsentPurpose(name="desk", provider="registrar", scopes=["calendar"])
        return Parts(oauth_providers={"registrar": registrar}, consent_purposes=[purpose])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_PUBLIC_URL", "https://app.example")
    desk = Service(name="desk", summary="Connects accounts", documents=(), build=build)
    monkeypatch.setattr(runtime, "find_services", lambda: [desk])


def _within(act: Callable[[Runtime], Awaitable[T]]) -> T:
    async def run() -> T:
        runtime = await Runtime.open(load_config())
        try:
            return await act(runtime)
        finally:
            await runtime.close()

    return asyncio.run(run())


def _connect(registrar: FakeOAuthProvider, account: str) -> str:
    registrar.account, registrar.name = account, f"{account}@hoge.jp"

    async def act(runtime: Runtime) -> str:
        started = await runtime.connections.start(
            "registrar", scopes=["calendar", "mail"], redirect_uri="https://a.example/", tenant_id="acme"
        )
        (code,) = parse_qs(urlsplit(started.url).query)["code"]
        return (await runtime.connections.finish(started.state, code)).id

    return _within(act)


def _holdfast(*words: str) -> Result:
    before = structlog.get_config()
    try:
        return CliRunner().invoke(app, words)
    finally:
        structlog.configure(**before)


def _run(*words: str) -> Result:
    return _holdfast("connections", *words)


def test_connections_are_listed_page_by_page_and_shown_without_their_tokens(
    registrar: FakeOAuthProvider,
) -> None:
    ids = [_connect(registrar, name) for name in ("ann", "bob", "cyd")]
    assert _run("list", "--tenant", "-").output.startswith("nothing is connected\n")
    assert [row["tenantId"] for row in json.loads(_run("list", "--json").stdout)["items"]] == ["acme"] * 3
    first = json.loads(_run("list", "--tenant", "acme", "--limit", "2", "--json").stdout)
    assert [row["name"] for row in first["items"]] == ["cyd@hoge.jp", "bob@hoge.jp"]
    rest = json.loads(
        _run("list", "--tenant", "acme", "--cursor", first["cursor"], "--limit", "2", "--json").stdout
    )
    assert [row["name"] for row in rest["items"]] == ["ann@hoge.jp"]
    shown = _run("show", ids[0])
    assert "status: connected" in shown.output
    assert "refused: mail" in shown.output
    for told in (shown.output, json.dumps(first), _run("list", "--tenant", "acme").output):
        assert "oken" not in told
        assert "hf1." not in told


def test_a_revoked_connection_is_ended_at_the_provider_and_on_the_audit_trail(
    registrar: FakeOAuthProvider,
) -> None:
    id = _connect(registrar, "ann")
    ended = _run("revoke", id, "--reason", "left", "--json")
    assert (json.loads(ended.stdout)["status"], json.loads(ended.stdout)["reason"]) == ("revoked", "left")
    assert len(registrar.revoked) == 1

    async def trail(runtime: Runtime) -> list[str]:
        return [json.loads(line)["action"] async for line in Audit(runtime.store, tenant_id="acme").export()]

    assert _within(trail) == ["connection.revoked"]
    assert json.loads(_run("list", "--tenant", "acme", "--status", "revoked", "--json").stdout)["items"]


def _follow(link: str) -> str:
    """Somebody opens a link, consents, and comes back: the connection's id."""
    token = link.strip().removeprefix("https://app.example/oauth/start?link=")

    async def act(runtime: Runtime) -> str:
        opened = await runtime.connections.open_link(token, bound_to="browser")
        (code,) = parse_qs(urlsplit(opened.url).query)["code"]
        return (await runtime.connections.finish(opened.state, code, bound_to="browser")).id

    return _within(act)


def test_a_printed_link_connects_an_account_and_connects_it_again(registrar: FakeOAuthProvider) -> None:
    first = _run("connect", "desk", "--tenant", "acme")
    assert first.exit_code == 0, first.output
    id = _follow(first.output)
    again = json.loads(_run("reconnect", id, "--json").stdout)
    assert _follow(again["url"]) == id
    assert _run("show", id).output.count("purpose: desk") == 1
    assert isinstance(_run("connect", "mail").exception, NotFoundError)


def test_a_local_end_is_not_told_to_the_provider(registrar: FakeOAuthProvider) -> None:
    id = _connect(registrar, "ann")
    assert _run("revoke", id, "--local").exit_code == 0
    assert (_run("check", id).exit_code, registrar.revoked) == (0, [])


def test_what_the_provider_could_not_be_told_is_told_by_a_check(registrar: FakeOAuthProvider) -> None:
    id = _connect(registrar, "ann")
    registrar.fault = RetryLaterError("answered 503")
    failed = _run("revoke", id)
    assert isinstance(failed.exception, RetryLaterError)
    assert f"holdfast connections check {id}" in failed.exception.message
    assert _run("check", id).exit_code == 1
    registrar.fault = None
    assert _run("check", id).exit_code == 0
    assert len(registrar.revoked) == 1


def test_a_check_says_who_must_connect_again_by_exit_code(registrar: FakeOAuthProvider) -> None:
    _connect(registrar, "ann")
    assert _run("check", "--tenant", "acme").exit_code == 0
    registrar.fault = ReauthRequiredError("the person took it back")
    done = _run("check", "--tenant", "acme")
    assert (done.exit_code, "the person took it back" in done.output) == (1, True)
    (row,) = json.loads(_run("list", "--tenant", "acme", "--status", "needs_reauth", "--json").stdout)[
        "items"
    ]
    assert row["name"] == "ann@hoge.jp"


@pytest.mark.parametrize("words", [("show", "nobody"), ("revoke", "nobody"), ("check", "nobody")])
def test_one_that_is_not_there_is_named(words: tuple[str, ...]) -> None:
    done = _run(*words)
    assert isinstance(done.exception, HoldfastError)
    assert "no connection 'nobody'" in done.exception.message


def test_a_status_that_is_none_is_wrong_usage() -> None:
    assert _run("list", "--status", "lost").exit_code == 2


def test_rotating_the_keys_reaches_connections_and_sign_ins_under_way(
    registrar: FakeOAuthProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_key("old"), new_key("new")
    monkeypatch.setenv("HOLDFAST_KEYS", old)
    id = _connect(registrar, "ann")

    async def begin(runtime: Runtime) -> None:
        await runtime.connections.start("registrar", scopes=[], redirect_uri="https://a.example/")

    _within(begin)
    monkeypatch.setenv("HOLDFAST_KEYS", f"{new},{old}")
    done = _holdfast("keys", "rotate", "--json")
    assert done.exit_code == 0, done.output
    resealed = {one["collection"]: one["resealed"] for one in json.loads(done.stdout)["rotations"]}
    assert (resealed["holdfast_connections"], resealed["holdfast_consents"]) == (1, 1)
    monkeypatch.setenv("HOLDFAST_KEYS", new)
    assert _within(lambda runtime: runtime.connections.token(id)).startswith("access-")
