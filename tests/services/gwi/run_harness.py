"""The service with a tenant, its people and a repository, for tests of runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.config import load_config
from holdfast.kit.metering import Meter
from holdfast.model import Caller
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.services.gwi import service
from holdfast.services.gwi.domain.plans import PLANS, PlanLimits
from holdfast.services.gwi.models.records import METER
from holdfast.services.gwi.models.runs import RunTrigger, RunType
from holdfast.services.gwi.models.tenants import (
    MemberRole,
    Repo,
    RepoSettings,
    RiskMode,
    Tenant,
    TenantSettings,
)
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.run_starts import RunRequest
from holdfast.store import Store, put

TENANT = "gh-org-7"
REPO = "gh-repo-42"
PEOPLE: Mapping[str, MemberRole] = {"olga": "owner", "adam": "admin", "dora": "developer", "vera": "viewer"}


@dataclass
class RunHarness:
    """One process."""

    runtime: Runtime
    clock: Clock

    @property
    def gwi(self) -> Gwi:
        operations: Gwi = self.runtime.parts["gwi"].operations
        return operations

    @property
    def store(self) -> Store:
        return self.runtime.store.tenant(TENANT)

    @property
    def meter(self) -> Meter:
        return self.runtime.meter(TENANT, models=METER)

    def by(self, user_id: str = "dora", tenant_id: str = TENANT) -> Operator:
        """Somebody with their role in the tenant."""
        return self.runtime.operator(Caller(user_id=user_id, roles={tenant_id: PEOPLE[user_id]}), tenant_id)

    async def found(
        self,
        tenant_id: str = TENANT,
        *,
        limits: PlanLimits | None = None,
        mode: RiskMode = "auto_push",
        repo: str = "acme/shop",
        installation_id: int = 7,
        **fields: Any,
    ) -> None:
        """Store a tenant with a repository."""
        now, org = self.clock.now(), int(tenant_id.removeprefix("gh-org-"))
        tenant = Tenant(
            id=tenant_id, github_org_id=org, github_org_login=f"org{org}", display_name=f"Org {org}",
            installation_id=installation_id, installed_at=now, plan="pro",
            plan_limits=limits or PLANS["pro"], settings=TenantSettings(default_risk_mode=mode),
            created_at=now, updated_at=now, **fields,
        )  # fmt: skip
        connected = Repo(
            id=REPO, tenant_id=tenant_id, github_repo_id=42, github_full_name=repo, display_name="shop",
            settings=RepoSettings(), added_at=now, updated_at=now,
        )  # fmt: skip
        await self.runtime.store.tenant(tenant_id).commit(put(tenant), put(connected))

    async def change_tenant(self, **fields: Any) -> None:
        stored = await self.store.get(Tenant, TENANT)
        assert stored is not None
        await self.store.commit(put(msgspec.structs.replace(stored.doc, **fields)))


def a_request(type: RunType = "triage", **fields: Any) -> RunRequest:
    given = {"repo_id": REPO, "trigger": RunTrigger(source="api", user_id="dora"), **fields}
    return RunRequest(type=type, **given)


def limits(*, monthly: int = 500, at_once: int = 20) -> PlanLimits:
    return PlanLimits(runs_per_month=monthly, repos_max=20, members_max=15, concurrent_runs_max=at_once)


@contextlib.asynccontextmanager
async def run_harness(
    url: str, clock: Clock, home: Path, *, found: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[RunHarness]:
    """One process on the store; with `found`, a tenant is stored first."""
    loaded = load_config({"home": home, "store": url, "allow": "127.0.0.1"}, environ={})
    loaded = msgspec.structs.replace(loaded, service_settings={"gwi": settings})
    runtime = await Runtime.open(loaded, services=[service], clock=clock)
    try:
        harness = RunHarness(runtime, clock)
        if found is not None:
            await harness.found(**found)
        yield harness
    finally:
        await runtime.close()
