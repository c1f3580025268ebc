"""Processes that share a connected account: one refreshes, also when one stands still or dies at it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
import pytest

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.kit.connections import Connection, ConnectionFields, Connections, connection_id
from holdfast.kit.vault import Vault, new_key
from holdfast.providers.google_calendar import CALENDAR_SCOPE
from holdfast.providers.google_oauth import OAuthClient, UserGrants
from holdfast.simulators.google import AddPerson, GoogleSimulator
from holdfast.store import Store
from tests.faults.connection_worker import ALL, PURPOSE, ChatAccount
from tests.faults.controlled_process import ControlledProcess, Order, run_processes
from tests.kit.eventually import until

BACK = "https://app.example/back"
PROCESSES = 4
ROUNDS = 10
WORKER = "tests.faults.connection_worker"
# Its lease ends soon, so that another need not be waited for long.
FAINT = {"faint": True, "lease_s": 1.0}


@dataclass
class ConnectedAccount:
    """A connected account, and what a process needs to use it."""

    google: GoogleSimulator
    store: Store
    connections: Connections
    connection: ConnectionFields
    order: Order

    @property
    def refreshes(self) -> int:
        return sum(call.path == "/token" and "refresh_token" in call.body for call in self.google.calls)

    async def token(self) -> str:
        return await self.connections.token(self.connection.id)


@pytest.fixture
async def connected(url: str) -> AsyncIterator[ConnectedAccount]:
    keys, store = new_key("k"), await open_store(url, ALL)
    await store.migrate()
    async with GoogleSimulator(clock=SystemClock()) as google, aiohttp.ClientSession() as session:
        google.run(AddPerson(email="ann@hoge.jp"))
        client = OAuthClient.parse(msgspec.json.encode(google.oauth_client(redirect_uris=[BACK])))
        grants = UserGrants(session, client, clock=store.clock)
        connections = Connections(
            store, Vault.from_settings(keys), {"google": grants}, purposes={"chat": PURPOSE}
        )
        started = await connections.start(
            "google", scopes=[CALENDAR_SCOPE], redirect_uri=BACK, tenant_id="acme"
        )
        async with session.get(started.url, allow_redirects=False) as page:
            brought = parse_qs(urlsplit(page.headers["Location"]).query)
        connection = await connections.finish(brought["state"][0], brought["code"][0])
        order = {
            "url": url, "keys": keys, "client": msgspec.json.encode(client).decode(),
            "connection": connection.id, "faint": False, "lease_s": 60.0,
        }  # fmt: skip
        yield ConnectedAccount(google, store, connections, connection, order)
    await store.close()


async def _ready(workers: list[ControlledProcess]) -> None:
    for worker in workers:
        assert await worker.hear() == "ready"


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_processes_that_want_a_new_token_at_once_ask_for_one(connected: ConnectedAccount) -> None:
    token = await connected.token()
    async with run_processes(WORKER, "use", *[connected.order] * PROCESSES) as workers:
        await _ready(workers)
        for number in range(1, ROUNDS + 1):
            for worker in workers:
                worker.say(token)
            got = {await worker.hear() for worker in workers}
            assert len(got) == 1
            assert token not in got
            assert connected.refreshes == number
            (token,) = got
    assert await connected.token() == token


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_one_killed_between_the_answer_and_keeping_it_is_survived(connected: ConnectedAccount) -> None:
    old = await connected.token()
    async with run_processes(WORKER, "use", connected.order | FAINT, connected.order) as (faint, other):
        await _ready([faint, other])
        faint.say(old)
        await until(lambda: faint.paused, within_s=30)
        await faint.kill()
        other.say(old)
        token = await other.hear()
    kept = await connected.connections.get(connected.connection.id)
    assert (await connected.token(), connected.refreshes) == (token, 2)
    assert token != old
    assert (kept.status, kept.generation) == ("connected", 2)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_an_answer_from_before_a_long_pause_does_not_replace_a_newer_one(
    connected: ConnectedAccount,
) -> None:
    old = await connected.token()
    async with run_processes(WORKER, "use", connected.order | FAINT, connected.order) as (faint, other):
        await _ready([faint, other])
        faint.say(old)
        await until(lambda: faint.paused, within_s=30)
        other.say(old)
        newer = await other.hear()
        faint.resume()
        assert await faint.hear() == newer
    kept = await connected.connections.get(connected.connection.id)
    assert (await connected.token(), kept.generation, connected.refreshes) == (newer, 2, 2)


async def _sign_in(connected: ConnectedAccount) -> str:
    """State and code of somebody who opened a start link and consented."""
    link = connected.connections.link("chat", tenant_id="hoge", redirect_uri=BACK, payload={"chat": "-100"})
    await connected.store.tenant("hoge").commit(link.write)
    opened = await connected.connections.open_link(link.token, bound_to="browser")
    async with aiohttp.ClientSession() as session, session.get(opened.url, allow_redirects=False) as page:
        brought = parse_qs(urlsplit(page.headers["Location"]).query)
    return f"{brought['state'][0]} {brought['code'][0]}"


async def _both(connected: ConnectedAccount) -> tuple[bool, bool]:
    """Whether the connection is stored, and the service's own row."""
    id = connection_id("hoge", "google", connected.connection.account)
    store = connected.store.tenant("hoge")
    account = await store.get(ChatAccount, connected.connection.account)
    return await store.get(Connection, id) is not None, account is not None


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_of_processes_with_one_callback_one_connects_with_the_services_row(
    connected: ConnectedAccount,
) -> None:
    async with run_processes(WORKER, "finish", *[connected.order] * 2) as workers:
        await _ready(workers)
        brought = await _sign_in(connected)
        for worker in workers:
            worker.say(brought)
        assert sorted([await worker.hear() for worker in workers]) == ["connected", "refused"]
    assert await _both(connected) == (True, True)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_one_killed_before_its_grant_is_stored_leaves_neither_and_the_next_link_works(
    connected: ConnectedAccount,
) -> None:
    async with run_processes(WORKER, "finish", connected.order | FAINT, connected.order) as (faint, other):
        await _ready([faint, other])
        brought = await _sign_in(connected)
        faint.say(brought)
        await until(lambda: faint.paused, within_s=30)
        await faint.kill()
        assert await _both(connected) == (False, False)
        other.say(brought)
        assert await other.hear() == "refused"
        other.say(await _sign_in(connected))
        assert await other.hear() == "connected"
    assert await _both(connected) == (True, True)
