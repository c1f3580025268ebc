"""A service at whose desk people connect their accounts of the simulated Google."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.kit.connections import Connection
from holdfast.providers.google_calendar import CALENDAR_SCOPE
from holdfast.providers.google_oauth import OAuthClient, UserGrants
from holdfast.providers.rest import CallLimits
from holdfast.runtime import Runtime
from holdfast.service import Context, Parts, Service
from tests.providers.provider_fixture import Setting

BACK = "https://app.example/back"


def desk(setting: Setting) -> Service:
    client = OAuthClient.parse(msgspec.json.encode(setting.google.oauth_client(redirect_uris=[BACK])))

    def build(context: Context) -> Parts:
        grants = UserGrants(setting.session, client, clock=context.clock, limits=CallLimits(attempts_max=1))
        return Parts(oauth_providers={"google": grants})

    return Service(name="desk", summary="Connects accounts.", documents=(), build=build)


class Running(Protocol):
    @property
    def runtime(self) -> Runtime: ...


async def connect(
    bed: Running,
    setting: Setting,
    email: str,
    *,
    tenant_id: str = "-",
    scopes: Sequence[str] = (CALENDAR_SCOPE,),
) -> Connection:
    """Somebody goes to Google, consents, and comes back."""
    connections = bed.runtime.connections
    started = await connections.start(
        "google", scopes=scopes, redirect_uri=BACK, tenant_id=tenant_id, hint=email
    )
    async with setting.session.get(started.url, allow_redirects=False) as page:
        assert page.status == 302, await page.text()
        brought = parse_qs(urlsplit(page.headers["Location"]).query)
    return await connections.finish(started.state, brought["code"][0])
