"""The service on a store of the test's choice, with a tenant, its people and a repository."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.config import load_config
from holdfast.model import Caller
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.services.gwi import service
from holdfast.services.gwi.domain.plans import PLANS
from holdfast.services.gwi.domain.subjects import SignalSource
from holdfast.services.gwi.models.tenants import (
    Member,
    MemberRole,
    Repo,
    RepoSettings,
    Tenant,
    TenantSettings,
)
from holdfast.services.gwi.models.work import SignalContext, SourceRepo, WorkSignal
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.signals import record_signal
from holdfast.store import Transaction, put
from holdfast.testing import ManualClock

T = TypeVar("T")
ORG = 7
TENANT = f"gh-org-{ORG}"
REPO_ID = 42
REPO = SourceRepo(owner="acme", name="shop", full_name="acme/shop", id=REPO_ID)
PEOPLE: Mapping[str, MemberRole] = {
    "olga": "owner", "adam": "admin", "dora": "developer", "dean": "developer", "vera": "viewer",
}  # fmt: skip


@dataclass
class Harness:
    """One process."""

    runtime: Runtime
    clock: Clock

    @property
    def gwi(self) -> Gwi:
        operations: Gwi = self.runtime.parts["gwi"].operations
        return operations

    @property
    def store(self) -> Any:
        return self.runtime.store.tenant(TENANT)

    @property
    def system(self) -> Operator:
        return self.runtime.operator(SERVICE, TENANT, actor="system")

    def by(self, user_id: str, tenant_id: str = TENANT) -> Operator:
        """Somebody with their role in the tenant."""
        caller = Caller(user_id=user_id, roles={TENANT: PEOPLE[user_id]} if user_id in PEOPLE else {})
        return self.runtime.operator(caller, tenant_id)

    async def found(self, tenant_id: str = TENANT, *, installation_id: int = ORG) -> None:
        """Store a tenant with its people and a repository."""
        now, org = self.clock.now(), int(tenant_id.removeprefix("gh-org-"))
        tenant = Tenant(
            id=tenant_id, github_org_id=org, github_org_login=f"org{org}", display_name=f"Org {org}",
            installation_id=installation_id, installed_at=now, plan="pro", plan_limits=PLANS["pro"],
            settings=TenantSettings(default_risk_mode="auto_push"), created_at=now, updated_at=now,
        )  # fmt: skip
        repo = Repo(
            id=f"gh-repo-{REPO_ID}", tenant_id=tenant_id, github_repo_id=REPO_ID,
            github_full_name="acme/shop", display_name="shop", settings=RepoSettings(),
            added_at=now, updated_at=now,
        )  # fmt: skip
        members = [
            Member(user_id=name, tenant_id=tenant_id, role=role, created_at=now, updated_at=now)
            for name, role in PEOPLE.items()
        ]
        await self.runtime.store.tenant(tenant_id).commit(put(tenant), put(repo), *map(put, members))

    async def signal(
        self,
        external_id: str,
        *,
        source: SignalSource = "github_issue",
        payload: Mapping[str, Any] | None = None,
        occurred_s: float | None = None,
        tenant_id: str = TENANT,
        **context: Any,
    ) -> WorkSignal | None:
        """Record a signal as the webhook does; by default it is about issue 1 of the repository.

        It is received later than the last: signals of the same microsecond have no order.
        """
        if isinstance(self.clock, ManualClock):
            await self.clock.advance(0.001)
        about: dict[str, Any] = {
            "repo": REPO,
            "resource_type": "issue",
            "resource_number": 1,
            "title": "It fails",
        }
        now = self.clock.now()
        occurred_at = now if occurred_s is None else now.fromtimestamp(occurred_s, tz=now.tzinfo)

        async def act(tx: Transaction) -> WorkSignal | None:
            return await record_signal(
                tx, tenant_id=tenant_id, source=source, external_id=external_id, occurred_at=occurred_at,
                now=now, context=SignalContext(**(about | context)), payload=payload,
            )  # fmt: skip

        return await self.runtime.store.tenant(tenant_id).transact(act)


@contextlib.asynccontextmanager
async def opened(
    url: str, clock: Clock, home: Path, *, config: Mapping[str, Any] = {}, **settings: Any
) -> AsyncIterator[Harness]:
    """One more process on the store."""
    loaded = load_config({"home": home, "store": url, **config}, environ={})
    loaded = msgspec.structs.replace(loaded, service_settings={"gwi": settings})
    runtime = await Runtime.open(loaded, services=[service], clock=clock)
    try:
        yield Harness(runtime, clock)
    finally:
        await runtime.close()


@contextlib.asynccontextmanager
async def gwi_harness(url: str, clock: Clock, home: Path, **settings: Any) -> AsyncIterator[Harness]:
    """The service on an empty store, with one tenant."""
    async with opened(url, clock, home, **settings) as harness:
        await harness.found()
        yield harness


async def while_time_passes(clock: Clock, doing: Coroutine[Any, Any, T], *, step_s: float = 1.0) -> T:
    """Wait for something that itself waits by the test's clock."""
    assert isinstance(clock, ManualClock)
    task = asyncio.ensure_future(doing)
    async with asyncio.timeout(30):
        while not task.done():
            await asyncio.sleep(0.005)
            await clock.advance(step_s)
    return task.result()
