"""Grants of people: they consent in a browser, and the tokens work until they say otherwise."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec

from holdfast.clock import Clock
from holdfast.errors import GoneError, InvalidError
from holdfast.providers.google_oauth.client import fault_of
from holdfast.providers.google_oauth.types import IdentityClaims, OAuthClient, UserGrant, UserTokenAnswer
from holdfast.providers.rest import Call, CallLimits, RestClient

# With these Google says whose account it is.
IDENTITY: Final = ("openid", "email")
_FORM: Final = "application/x-www-form-urlencoded"
_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")


class UserGrants:
    """The authorization code flow with PKCE, refresh and revocation, for one OAuth client.

    It has the shape that `holdfast.kit.connections` asks of a provider.

    Example: `Connections(store, vault, {"google": UserGrants(session, client, clock=clock)})`
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        client: OAuthClient,
        *,
        clock: Clock,
        limits: CallLimits = CallLimits(call_s=10.0),
    ) -> None:
        self._client = client
        self._token = RestClient(session, client.token_uri, fault_of=fault_of, clock=clock, limits=limits)
        self._revoke = RestClient(session, client.revoke_uri, fault_of=fault_of, clock=clock, limits=limits)

    def authorize_url(
        self, *, state: str, challenge: str, redirect_uri: str, scopes: Sequence[str], hint: str = ""
    ) -> str:
        """Google's page of consent; a refresh token is given also to who consented before."""
        words = {
            "client_id": self._client.client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "scope": " ".join(dict.fromkeys([*IDENTITY, *scopes])),
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "access_type": "offline",
            "prompt": "consent",
        }
        return f"{self._client.auth_uri}?{urlencode(words | ({'login_hint': hint} if hint else {}))}"

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> UserGrant:
        """The grant for a code, which works once."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        answer = await self._asked("the exchange of a code", form, repeatable=False)
        claims = self._claims(answer.id_token)
        return _grant(answer, account=claims.sub, name=claims.email)

    async def refresh(self, refresh_token: str) -> UserGrant:
        """A new access token; Google keeps the refresh token as it is."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return _grant(await self._asked("the refresh of a token", form, repeatable=True))

    async def revoke(self, token: str) -> None:
        """End the whole grant; fine when it has ended already."""
        body = urlencode({"token": token}).encode()
        call = Call("the revocation", "POST", "", body=body, content_type=_FORM, repeatable=True)
        with suppress(GoneError):
            await self._revoke.call(call)

    async def _asked(self, act: str, form: Mapping[str, str], *, repeatable: bool) -> UserTokenAnswer:
        client = {"client_id": self._client.client_id, "client_secret": self._client.client_secret}
        call = Call(
            act, "POST", "", body=urlencode({**form, **client}).encode(), content_type=_FORM,
            repeatable=repeatable,
        )  # fmt: skip
        return await self._token.fetch(call, UserTokenAnswer)

    def _claims(self, id_token: str) -> IdentityClaims:
        """Whose account it is. The token came straight from Google; its signature would prove no more."""
        try:
            _, body, _ = id_token.split(".")
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            claims = msgspec.json.decode(raw, type=IdentityClaims)
        except (ValueError, binascii.Error, msgspec.DecodeError):
            raise InvalidError("the exchange of a code gave no identity token that can be read") from None
        if claims.aud != self._client.client_id or claims.iss not in _ISSUERS:
            raise InvalidError("the exchange of a code gave an identity token meant for somebody else")
        return claims


def _grant(answer: UserTokenAnswer, *, account: str = "", name: str = "") -> UserGrant:
    scopes = tuple(one for one in answer.scope.split() if not one.endswith(("openid", "/userinfo.email")))
    return UserGrant(
        access_token=answer.access_token, refresh_token=answer.refresh_token, expires_in_s=answer.expires_in,
        scopes=scopes, account=account, name=name,
    )  # fmt: skip
