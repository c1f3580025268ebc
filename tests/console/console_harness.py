"""The console over a real socket, with the loops running where a test wants them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from yarl import URL

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.http.asgi import AsgiApp
from holdfast.http.change_stream import ChangeStream, topics_of
from holdfast.kit.access import Sessions, User, Users
from holdfast.kit.access.passwords import hash_password
from holdfast.kit.outbox import Endpoint, EndpointSecrets, Event, Outbox, RetryPolicy, new_secret
from holdfast.runtime import Runtime
from holdfast.server import compose, first_link, settings
from holdfast.service import Service
from holdfast.store import put
from tests.serving import served

PASSWORD: Final = "correct horse battery"
TENANT: Final = "-"
_HOSTS: Final = {"sec-fetch-site": "same-origin"}


_hashes: list[str] = []


async def _hash() -> str:
    """Made once: a good hash is a slow one."""
    if not _hashes:
        _hashes.append(await hash_password(PASSWORD))
    return _hashes[0]


@dataclass
class ConsoleHarness:
    runtime: Runtime
    surface: AsgiApp
    address: str
    sessions: list[aiohttp.ClientSession] = field(default_factory=list)

    @property
    def url(self) -> URL:
        return URL(self.address)

    def visitor(self) -> Visitor:
        """A browser without cookies yet."""
        # Addresses are no names: the jar must be told to keep their cookies.
        session = aiohttp.ClientSession(self.address, cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.sessions.append(session)
        return Visitor(session)

    async def signed_in(self, name: str = "ann", *, role: Any = "owner", tenant_id: str = TENANT) -> Visitor:
        user = await self.person(name, role=role, tenant_id=tenant_id)
        visitor = self.visitor()
        cookie = await Sessions(self.runtime.store).begin(user)
        visitor.session.cookie_jar.update_cookies({"holdfast_session": cookie}, self.url)
        return visitor

    async def person(self, name: str = "ann", *, role: Any = "owner", tenant_id: str = TENANT) -> User:
        """Somebody whose password is `PASSWORD`."""
        user = await Users(self.runtime.store).add(name, role=role, tenant_id=tenant_id)
        user.password = await _hash()
        await self.runtime.store.privileged().commit(put(user))
        return user

    def renew_changes(self) -> None:
        """A stream of changes that is open again."""
        self.surface.changes = ChangeStream(self.runtime.store, topics_of(self.runtime))

    async def first_link(self) -> str:
        link = await first_link(self.runtime, self.address)
        assert link is not None
        return link

    async def endpoint(self, url: str, id: str = "rms", *, waits_s: Sequence[float] = ()) -> Endpoint:
        made = Endpoint(
            id=id, url=url, created_at=self.runtime.clock.now(), retry=RetryPolicy(waits_s=tuple(waits_s))
        )
        made.secrets = [EndpointSecrets(self.runtime.vault).seal(made, new_secret())]
        await self.runtime.store.tenant(TENANT).commit(put(made))
        return made

    async def send(self, endpoint: Endpoint, *bodies: str, type: str = "lease.renewed") -> list[str]:
        """Put events out; gives the ids of their deliveries."""
        outbox, ids = Outbox(self.runtime.store.tenant(TENANT), local_dispatcher=self.runtime.dispatcher), []
        for number, body in enumerate(bodies):
            event = Event(type=type, body=body.encode(), id=f"event-{number}-{len(self.sessions)}")
            await self.runtime.store.tenant(TENANT).commit(*outbox.writes(event, [endpoint]))
            ids.append(f"{event.id}~{endpoint.id}")
        return ids


@dataclass
class Visitor:
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, str, Mapping[str, str]]:
        """Status, text and headers of an answer, redirects not followed."""
        headers = {**_HOSTS, **more.pop("headers", {})}
        async with self.session.request(
            method, path, headers=headers, allow_redirects=False, **more
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    async def page(self, path: str, status: int = 200) -> str:
        found, text, _ = await self.ask("GET", path)
        assert found == status, text
        return text

    async def csrf(self) -> str:
        told = re.search(r'<meta name="csrf" content="([^"]*)">', await self.page("/console"))
        assert told is not None
        return told[1]

    async def act(self, path: str, body: Any = None) -> tuple[int, str, Mapping[str, str]]:
        """What a button does."""
        return await self.ask("POST", path, json=body or {}, headers={"x-csrf-token": await self.csrf()})


@contextlib.asynccontextmanager
async def console(
    home: Path,
    *,
    services: Sequence[Service] = (),
    work: bool = False,
    at_root: bool = False,
    store: str | None = None,
    public_url: str | None = None,
    proxies: str | None = None,
) -> AsyncIterator[ConsoleHarness]:
    given = {
        "home": home, "allow": "127.0.0.1", "store": store, "public_url": public_url, "proxies": proxies,
    }  # fmt: skip
    runtime = await Runtime.open(load_config(given, environ={}), services=services, clock=SystemClock())
    surface = compose(runtime, at_root=at_root)
    surface.ready = True
    stop = asyncio.Event()
    working = asyncio.create_task(runtime.work(stop)) if work else None
    try:
        async with served(settings(surface)) as address:
            harness = ConsoleHarness(runtime, surface, address)
            try:
                yield harness
            finally:
                for session in harness.sessions:
                    await session.close()
                surface.changes.close()
    finally:
        stop.set()
        if working is not None:
            await working
        await runtime.close()
