"""The service behind real HTTP with a simulated GitHub that sends its events there.

No loop runs until the test says so: `work` has what GitHub sent so far handled.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from holdfast.config import load_config
from holdfast.http.asgi import AsgiApp
from holdfast.kit.inbox import InboxItem
from holdfast.runtime import Runtime
from holdfast.server import compose, settings
from holdfast.services.gwi import service
from holdfast.services.gwi.models.records import AuditRecord
from holdfast.services.gwi.operations import Gwi
from holdfast.simulators.github import AddRepository, GithubSimulator, Install, SetWebhook, ShowRepository
from holdfast.store import Query, Store
from holdfast.testing import ManualClock
from tests.serving import served

SECRET = "a secret of the webhook"
REPO = "acme/api"
FILES = {"README.md": "# API\n", "src/main.py": "one\ntwo\nthree\nfour\nfive\n"}
EXAMPLES = Path(__file__).parents[3] / ".cache/node_modules/@octokit/webhooks-examples"


@cache
def _examples(edition: str) -> list[tuple[str, dict[str, Any]]]:
    listed = [one for file in EXAMPLES.glob(f"{edition}/index.json") for one in json.loads(file.read_bytes())]
    return [(one["name"], payload) for one in listed for payload in one["examples"]]


def examples(
    request: pytest.FixtureRequest, edition: str = "api.github.com"
) -> list[tuple[str, dict[str, Any]]]:
    """Every example payload with its event's name; `make test` installs them below .cache/."""
    if EXAMPLES.exists():
        return _examples(edition)
    reason = "npm install --prefix .cache --no-save @octokit/webhooks-examples@7 axe-core@4"
    request.node.user_properties.append(("engine-missing", f"webhooks-examples: {reason}"))
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@dataclass
class GithubHarness:
    """One process, the simulated GitHub, and a client that sends what GitHub would not."""

    github: GithubSimulator
    runtime: Runtime
    clock: ManualClock
    url: str
    session: aiohttp.ClientSession
    surface: AsgiApp

    @property
    def gwi(self) -> Gwi:
        operations: Gwi = self.runtime.parts["gwi"].operations
        return operations

    @property
    def store(self) -> Store:
        return self.runtime.store.privileged()

    async def work(self) -> None:
        """Have everything handled that GitHub has sent, and what follows from it."""
        await self.github.wait_for_deliveries()
        signals = self.runtime.parts["gwi"].loops["signals"]
        while True:
            done = await self.runtime.inbox_worker.turn() + await self.runtime.runner.turn()
            if not done + await signals.turn():  # type: ignore[attr-defined]
                return
            await self.github.wait_for_deliveries()

    async def install(self, *, by: str = "olivia", repositories: list[str] | None = None) -> tuple[str, int]:
        """Install the App in the organisation `acme`; return its tenant and the installation."""
        made: Any = self.github.run(Install(account="acme", by=by, repositories=repositories))
        await self.work()
        return f"gh-org-{made['account']['id']}", made["id"]

    async def send(
        self, event: str, payload: Any, *, delivery: str = "d-1", secret: str = SECRET, **headers: str
    ) -> tuple[int, Any]:
        """Send an event as GitHub does; return the answer."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        signed = {"X-GitHub-Event": event, "X-Hub-Signature-256": f"sha256={digest}"}
        signed |= {"X-GitHub-Delivery": delivery} if delivery else {}
        async with self.session.post(self.url, data=io.BytesIO(body), headers=signed | headers) as answer:
            return answer.status, await answer.json()

    async def items(self, status: Any = "ignored") -> list[InboxItem]:
        return list((await self.runtime.inbox.page(status, limit=500))[0])

    async def find(self, kind: Any, tenant_id: str, order: str) -> list[Any]:
        """All documents of a kind in a tenant."""
        query = Query(kind).order_by(order)
        return list((await self.runtime.store.tenant(tenant_id).query(query)).docs)

    async def events(self, tenant_id: str) -> list[str]:
        """The actions on the tenant's audit trail."""
        return [one.action for one in await self.find(AuditRecord, tenant_id, "sequence")]

    def comments(self) -> list[str]:
        shown: Any = self.github.run(ShowRepository(repo=REPO))
        return [one["body"] for one in shown["comments"]]


@contextlib.asynccontextmanager
async def github_harness(
    url: str, clock: ManualClock, home: Path, **changed: Any
) -> AsyncIterator[GithubHarness]:
    async with (
        GithubSimulator(clock=clock) as github,
        aiohttp.ClientSession() as session,
        contextlib.AsyncExitStack() as stack,
    ):
        table = {
            "app_id": github.app_id, "app_key": github.private_key, "github_url": github.url,
            "webhook_secret": SECRET, **changed,
        }  # fmt: skip
        loaded = load_config({"home": home, "store": url}, environ={})
        loaded = msgspec.structs.replace(loaded, service_settings={"gwi": table})
        runtime = await Runtime.open(loaded, services=[service], clock=clock)
        stack.push_async_callback(runtime.close)
        surface = compose(runtime)
        surface.ready = True
        address = await stack.enter_async_context(served(settings(surface)))
        stack.callback(surface.changes.close)
        github.run(SetWebhook(url=f"{address}/gwi/webhook", secret=SECRET))
        github.run(AddRepository(name=REPO, files=FILES))
        yield GithubHarness(github, runtime, clock, f"{address}/gwi/webhook", session, surface)
