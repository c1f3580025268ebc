"""Console pages of a tenant itself: its settings and repositories, its members, its policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

import msgspec

from holdfast.errors import NotFoundError
from holdfast.service import Page, PageRequest
from holdfast.services.gwi.domain.plans import PLANS, concurrent_runs_max
from holdfast.services.gwi.models.tenants import MemberRole, RiskMode, Tenant
from holdfast.services.gwi.operations import Gwi

ROWS: Final = 100
LIVE: Final = ("gwi",)


class TenantViews:
    """Data of the pages."""

    def __init__(self, gwi: Gwi) -> None:
        self._gwi = gwi

    async def _tenant(self, ask: PageRequest) -> Tenant | None:
        """The organisation; None for a tenant that is none, such as the platform itself."""
        try:
            return await self._gwi.tenants.get(ask.tenant_id)
        except NotFoundError:
            return None

    async def organisation(self, ask: PageRequest) -> Mapping[str, Any]:
        tenant = await self._tenant(ask)
        if tenant is None:
            return {"tenant": None}
        repos = await self._gwi.repos.page(tenant.id, limit=ROWS, cursor=ask.cursor)
        connectors = await self._gwi.connectors.page(tenant.id) if ask.may("admin") else None
        return {
            "title": tenant.display_name, "tenant": tenant, "repos": repos.docs, "after": repos.cursor,
            "plans": list(PLANS), "at_once": concurrent_runs_max(tenant.plan, tenant.plan_limits),
            "risk_modes": get_args(RiskMode), "connectors": connectors.docs if connectors else (),
        }  # fmt: skip

    async def members(self, ask: PageRequest) -> Mapping[str, Any]:
        tenant = await self._tenant(ask)
        if tenant is None:
            return {"tenant": None}
        members = await self._gwi.members.page(tenant.id, limit=ROWS, cursor=ask.cursor)
        invites = (await self._gwi.members.invites(tenant.id, limit=ROWS)).docs
        return {
            "tenant": tenant, "rows": members.docs, "after": members.cursor,
            "roles": get_args(MemberRole)[::-1],
            "invites": [one for one in invites if one.status == "pending"],
        }  # fmt: skip

    async def policy(self, ask: PageRequest) -> Mapping[str, Any]:
        policy = await self._gwi.policies.get(ask.tenant_id)
        text = msgspec.json.format(msgspec.json.encode(policy.document), indent=2).decode()
        return {"policy": policy, "text": text}


def pages(gwi: Gwi) -> list[Page]:
    views = TenantViews(gwi)
    return [
        Page(
            path="/organisation", title="Organisation", template="organisation.html",
            data=views.organisation, live=LIVE,
        ),
        Page(path="/members", title="Members", template="members.html", data=views.members, live=LIVE,
             needs="admin"),
        Page(path="/policy", title="Policy", template="policy.html", data=views.policy, live=LIVE),
    ]  # fmt: skip
