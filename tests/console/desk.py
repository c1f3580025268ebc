"""A service at whose desk people connect their accounts of the simulated Google."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.kit.connections import ConnectionFields, ConsentPurpose
from holdfast.providers.google_calendar import CALENDAR_SCOPE
from holdfast.providers.google_oauth import OAuthClient, UserGrants
from holdfast.providers.rest import CallLimits
from holdfast.runtime import Runtime
from holdfast.service import Context, Parts, Service
from holdfast.web import callback_url
from tests.providers.provider_fixture import Setting

PUBLIC_URL = "http://app.example"
BACK = f"{PUBLIC_URL}/back"
PURPOSE = ConsentPurpose(name="desk", provider="google", scopes=[CALENDAR_SCOPE], title="a calendar")


def desk(setting: Setting) -> Service:
    uris = [BACK, callback_url(PUBLIC_URL)]
    client = OAuthClient.parse(msgspec.json.encode(setting.google.oauth_client(redirect_uris=uris)))

    def build(context: Context) -> Parts:
        grants = UserGrants(setting.session, client, clock=context.clock, limits=CallLimits(attempts_max=1))
        return Parts(oauth_providers={"google": grants}, consent_purposes=[PURPOSE])

    return Service(name="desk", summary="Connects accounts.", documents=(), build=build)


class Running(Protocol):
    @property
    def runtime(self) -> Runtime: ...


async def connect(
    harness: Running,
    setting: Setting,
    email: str,
    *,
    tenant_id: str = "-",
    scopes: Sequence[str] = (CALENDAR_SCOPE,),
) -> ConnectionFields:
    """Somebody goes to Google, consents, and comes back."""
    connections = harness.runtime.connections
    started = await connections.start(
        "google", scopes=scopes, redirect_uri=BACK, tenant_id=tenant_id, hint=email
    )
    return await connections.finish(*await consent(setting, started.url))


async def consent(setting: Setting, url: str) -> tuple[str, str]:
    """Somebody consents at Google: the state and the code they bring back."""
    async with setting.session.get(url, allow_redirects=False) as page:
        assert page.status == 302, await page.text()
        brought = parse_qs(urlsplit(page.headers["Location"]).query)
    return brought["state"][0], brought["code"][0]
