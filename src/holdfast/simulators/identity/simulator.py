"""The simulated identity provider over HTTP: discovery, keys, a page to choose a person on, tokens."""

from __future__ import annotations

import base64
import binascii
import html
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_plus, urlencode

from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.identity.state import (
    ChooseNext,
    IdentityState,
    RegisterClient,
    RegisterPerson,
    RequestRefusal,
    RotateKeys,
    SetSkew,
)
from holdfast.simulators.server import Command, InjectedFault, SimulatorServer, json_response

COMMANDS: Final[dict[str, type[Command[IdentityState]]]] = {
    "person": RegisterPerson,
    "client": RegisterClient,
    "choose": ChooseNext,
    "rotate": RotateKeys,
    "skew": SetSkew,
}


class IdentitySimulator(SimulatorServer[IdentityState]):
    """An OpenID Connect provider for the authorization code flow with PKCE.

    Example:
        async with IdentitySimulator(clock=SystemClock()) as provider:
            provider.run(RegisterPerson(email="ann@acme.example"))
            provider.run(RegisterClient(client_id="holdfast", redirect_uris=(callback,)))
    """

    def __init__(self, *, clock: Clock, port: int = 0) -> None:
        super().__init__(IdentityState(clock), clock=clock, commands=COMMANDS, refuse=_refuse, port=port)
        router = self.app.router
        router.add_get("/.well-known/openid-configuration", self._describe)
        router.add_get("/keys", self._publish)
        router.add_get("/authorize", self._authorize)
        router.add_post("/token", self._token)

    async def __aenter__(self) -> Any:
        await super().__aenter__()
        self.state.issuer = self.url
        return self

    async def _describe(self, request: web.Request) -> web.Response:
        return json_response({
            "issuer": self.url, "jwks_uri": f"{self.url}/keys", "response_types_supported": ["code"],
            "authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token",
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        })  # fmt: skip

    async def _publish(self, request: web.Request) -> web.Response:
        return json_response({"keys": [self.state.key.as_dict(private=False, use="sig")]})

    async def _authorize(self, request: web.Request) -> web.Response:
        try:
            self.state.check_client(request.query)
        except RequestRefusal as fault:
            return web.Response(text=f"Error: {fault}", status=400)
        if self.state.choices:
            return self._redirect(request.query, self.state.choices.pop(0))
        if "as" in request.query:
            return self._redirect(request.query, request.query["as"])
        return web.Response(text=self._page(request.query), content_type="text/html")

    def _redirect(self, query: Mapping[str, str], email: str) -> web.Response:
        known = email in self.state.people
        answer = {"code": self.state.issue_code(query, email)} if known else {"error": "access_denied"}
        location = f"{query['redirect_uri']}?{urlencode(answer | {'state': query.get('state', '')})}"
        return web.Response(status=303, headers={"Location": location})

    def _page(self, query: Mapping[str, str]) -> str:
        asked = dict(query)
        links = [
            (person.name or person.email, urlencode(asked | {"as": email}))
            for email, person in self.state.people.items()
        ]
        items = "".join(
            f'<li><a href="/authorize?{html.escape(link)}">{html.escape(name)}</a></li>'
            for name, link in [*links, ("Nobody: cancel", urlencode(asked | {"as": ""}))]
        )
        return f"<!doctype html><title>Simulated identity provider</title><h1>Sign in as</h1><ul>{items}</ul>"

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        try:
            return json_response(self.state.exchange(form, _secret(request)))
        except RequestRefusal as fault:
            status = 401 if str(fault) == "invalid_client" else 400
            return json_response({"error": str(fault)}, status=status)


def _secret(request: web.Request) -> str:
    scheme, _, coded = request.headers.get("Authorization", "").partition(" ")
    try:
        pair = base64.b64decode(coded).decode() if scheme == "Basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        pair = ""
    return unquote_plus(pair.partition(":")[2])


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    return json_response({"error": fault.reason or "temporarily_unavailable"}, status=fault.status)
