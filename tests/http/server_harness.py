"""A small service served over a real socket, with a real receiver for what it sends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from litestar import get

from holdfast import server as serving_process
from holdfast.clock import Clock
from holdfast.config import load_config
from holdfast.errors import UnverifiedError
from holdfast.http.app import create_app
from holdfast.http.asgi import AsgiApp
from holdfast.kit.access import ApiTokens
from holdfast.kit.inbox import InboxItem, Source, Verified
from holdfast.kit.outbox import Endpoint, EndpointSecrets, Event, RetryPolicy, new_secret
from holdfast.kit.schedules import Job, Slot
from holdfast.model import Document, document
from holdfast.runtime import Runtime
from holdfast.service import Context, Parts, Service, Webhook
from holdfast.store import Transaction, put
from tests.serving import served

SECRET: Final = "let me in"
TENANT: Final = "-"
# Tests ask faster than people; how it is limited has tests of its own.
PLENTY: Final = {"caller_burst": 100_000, "address_burst": 100_000}


@document("echoes/{id}")
class Echo(Document):
    id: str
    text: str


class KnowsTheWord:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        if headers.get("x-word") != SECRET:
            raise UnverifiedError("say the word")
        return Verified(headers["x-name"])


SOURCE: Final = Source(name="echoes", verifier=KnowsTheWord(), body_bytes_max=10_000)


@get("/hello", opt={"needs": "viewer"})
async def hello() -> dict[str, str]:
    return {"hello": "you"}


@get("/page", opt={"needs": "viewer", "page": True}, include_in_schema=False)
async def page() -> str:
    return "for people"


def echo_service(*, hook_s: float | None = None) -> Service:
    """Keeps each message that comes in, and sends it on to the endpoint `there` in the same commit."""

    def build(context: Context) -> Parts:
        outbox = context.outbox(TENANT)

        async def echo(item: InboxItem, tx: Transaction) -> None:
            tx.write(put(Echo(id=item.message_id, text=item.body.decode())))
            found = await tx.get(Endpoint, "there")
            if found is not None:
                await outbox.add(tx, Event(type="echo", body=item.body, id=item.message_id), [found.doc])

        async def daily(slot: Slot) -> None:
            await context.store.commit(put(Echo(id="daily", text="by the clock")))

        return Parts(
            routes=[hello, page], webhooks=[Webhook(path="/webhook", source=SOURCE, time_limit_s=hook_s)],
            handlers={"echoes": echo}, jobs=[Job(name="daily", cron="0 0 1 1 *", act=daily)],
        )  # fmt: skip

    return Service(name="echo_chamber", summary="Sends back.", documents=[Echo], build=build)


SERVICE: Final = echo_service()


@dataclass
class ServerHarness:
    runtime: Runtime
    surface: AsgiApp
    client: aiohttp.ClientSession
    address: str

    async def ask(
        self, method: str, path: str, *, token: str | None = None, **more: Any
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, JSON (or text) and headers of an answer."""
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **more.pop("headers", {})}
        async with self.client.request(method, path, headers=headers, **more) as answer:
            is_json = answer.headers.get("content-type", "").startswith("application/json")
            return answer.status, await (answer.json() if is_json else answer.text()), answer.headers

    async def token(self, role: Any, tenant: str = TENANT, **more: Any) -> str:
        return await ApiTokens(self.runtime.store).create("test", role=role, tenant_id=tenant, **more)

    async def send(self, name: str, body: str = "hi", *, word: str = SECRET) -> int:
        """A webhook from outside."""
        headers = {"x-word": word, "x-name": name}
        status, _, _ = await self.ask("POST", "/echo-chamber/webhook", headers=headers, data=body)
        return status

    async def endpoint(self, url: str, *, retry: RetryPolicy | None = None) -> None:
        retry = retry or RetryPolicy(waits_s=())
        made = Endpoint(id="there", url=url, created_at=self.runtime.clock.now(), retry=retry)
        made.secrets = [EndpointSecrets(self.runtime.vault).seal(made, new_secret())]
        await self.runtime.store.tenant(TENANT).commit(put(made))


@contextlib.asynccontextmanager
async def serving(
    home: Path,
    *,
    ready: bool = True,
    services: Sequence[Service] | None = None,
    clock: Clock | None = None,
    at_root: bool = False,
    more: Callable[[Runtime], Sequence[Any]] = lambda runtime: (),
    **settings: Any,
) -> AsyncIterator[ServerHarness]:
    """The service, or others, over a socket; no loops run until something asks for work."""
    config = load_config({"home": home, "allow": "127.0.0.1", "limits": PLENTY, **settings}, environ={})
    runtime = await Runtime.open(config, services=services or [echo_service()], clock=clock)
    surface = create_app(runtime, at_root=at_root, more=more(runtime))
    surface.ready = ready
    try:
        async with (
            served(serving_process.settings(surface)) as address,
            aiohttp.ClientSession(address) as client,
        ):
            yield ServerHarness(runtime, surface, client, address)
    finally:
        await runtime.close()
