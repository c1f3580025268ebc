"""An issuer of identity tokens over a real socket: signs, rotates its keys, breaks on demand."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from holdfast.clock import Clock
from holdfast.config import Issuer, IssuerGrant

AUDIENCE = "https://holdfast.example"
EMAIL = "timer@project.iam.example"


def unsigned(header: dict[str, Any], claims: dict[str, Any]) -> str:
    """A token's form without a signature."""
    return f"{_text(json.dumps(header).encode())}.{_text(json.dumps(claims).encode())}."


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


class StandIn:
    """Knows its keys and how often it was asked for them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.keys = {"k1": RSAKey.generate_key(2048, parameters={"kid": "k1"}, private=True)}
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.status = 200
        self.hold = asyncio.Event()
        self.hold.set()
        self.url = ""

    def settings(self, **more: Any) -> Issuer:
        values: dict[str, Any] = {
            "issuer": self.url,
            "audiences": (AUDIENCE,),
            "allow": (IssuerGrant(email=EMAIL, role="admin"), IssuerGrant(subject="s-acme", tenant="acme")),
        }
        return Issuer(**(values | more))

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(self.clock.now().timestamp())
        values = {
            "iss": self.url, "sub": "1067", "aud": AUDIENCE, "iat": now, "exp": now + 3_600,
            "email": EMAIL, "email_verified": True,
        }  # fmt: skip
        return {name: value for name, value in (values | more).items() if value is not None}

    def token(self, *, kid: str = "k1", header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token as this issuer would sign it; claims given as None are left out."""
        key = self.keys.get(kid) or self.keys["k1"]
        head = {"alg": "RS256", "kid": kid, **(header or {})}
        return jwt.encode(head, self.claims(**claims), key, algorithms=[head["alg"]])

    def forged_with_the_public_key(self) -> str:
        """The old trick: the published key as the secret of a shared-key signature."""
        said = unsigned({"alg": "HS256", "kid": "k1", "typ": "JWT"}, self.claims()).rstrip(".")
        secret = self.keys["k1"].as_pem(private=False)
        return f"{said}.{_text(hmac.digest(secret, said.encode(), 'sha256'))}"

    def rotate(self, kid: str) -> None:
        self.keys = {kid: RSAKey.generate_key(2048, parameters={"kid": kid}, private=True)}

    async def described(self, request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})

    async def published(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.was_asked.set()
        await self.hold.wait()
        published = [key.as_dict(private=False, use="sig") for key in self.keys.values()]
        return web.json_response({"keys": published}, status=self.status)


@contextlib.asynccontextmanager
async def issuing(clock: Clock) -> AsyncIterator[StandIn]:
    issuer = StandIn(clock)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.described)
    app.router.add_get("/keys", issuer.published)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        issuer.hold.set()
        await runner.cleanup()
