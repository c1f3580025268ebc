"""The service over HTTP, with people whom an issuer of identity tokens vouches for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.services.gwi import service
from tests.http.issuer import StandIn, issuing
from tests.http.server_harness import ServerHarness, serving

ORG = {"githubOrgId": 7, "githubOrgLogin": "acme"}
TENANT = "gh-org-7"
T = f"/gwi/tenants/{TENANT}"


def user_id(name: str) -> str:
    return f"oidc:{name}@people.example"


@dataclass
class Api:
    """People are known by their first names; each has an address of their own."""

    harness: ServerHarness
    issuer: StandIn

    async def ask(
        self, name: str, method: str, path: str, json: Any = None, *, key: str = ""
    ) -> tuple[int, Any]:
        status, body, _ = await self.request(name, method, path, json, key=key)
        return status, body

    async def request(
        self, name: str, method: str, path: str, json: Any = None, *, key: str = ""
    ) -> tuple[int, Any, Any]:
        """Ask as this person; a mutating request sends a body, {} where there is nothing to say."""
        token = self.issuer.token(sub=f"sub-{name}", email=f"{name}@people.example")
        body = {} if json is None and method != "GET" else json
        headers = {"idempotency-key": key} if key else {}
        return await self.harness.ask(method, path, token=token, json=body, headers=headers)

    async def done(self, name: str, method: str, path: str, json: Any = None, *, key: str = "") -> Any:
        """The body of an answer that must be a success."""
        status, body = await self.ask(name, method, path, json, key=key)
        assert status < 300, (status, body)
        return body

    async def join(self, name: str, role: str, *, by: str = "olga") -> None:
        """Invite somebody, who accepts."""
        invited = {"email": f"{name}@people.example", "role": role}
        sent = await self.done(by, "POST", f"{T}/invites", invited)
        await self.done(name, "POST", f"/gwi/invites/{sent['token']}/accept")

    async def found(self, *, plan: str = "team", **roles: str) -> None:
        """Create the tenant, with olga as its owner, and members with their roles."""
        await self.done("olga", "POST", "/gwi/tenants", ORG)
        if plan != "free":
            await self.done("olga", "POST", f"{T}/plan", {"plan": plan})
        for name, role in roles.items():
            await self.join(name, role)

    async def events(self) -> list[str]:
        """The actions on the tenant's trail, oldest first."""
        from holdfast.services.gwi.models.records import AUDIT, AuditRecord
        from holdfast.store import Query

        store = self.harness.runtime.store.tenant(TENANT)
        page = await store.query(Query(AuditRecord).order_by("sequence").limit(500))
        verified = await self.harness.runtime.audit(TENANT, models=AUDIT).verify()
        assert verified.fault is None
        return [one.action for one in page.docs if one.outcome == "done"]


@contextlib.asynccontextmanager
async def gwi_api(home: Path, clock: Clock, **settings: Any) -> AsyncIterator[Api]:
    """The service served alone, on an empty store."""
    async with (
        issuing(clock) as issuer,
        serving(
            home, services=[service], clock=clock, oidc=[issuer.settings(allow=())], **settings
        ) as harness,
    ):
        yield Api(harness, issuer)
