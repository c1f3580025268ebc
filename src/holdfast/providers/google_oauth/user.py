"""Grants of users: they consent in a browser, and the tokens work until they revoke them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

import msgspec

from holdfast.clock import Clock
from holdfast.errors import GoneError, InvalidError
from holdfast.net import HttpSession
from holdfast.providers.google_oauth.client import fault_of
from holdfast.providers.google_oauth.types import IdentityClaims, OAuthClient, UserGrant, UserTokenAnswer
from holdfast.providers.rest import CallLimits, RestClient, form_call

# With these scopes Google names the account.
IDENTITY: Final = ("openid", "email")
_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")


class UserGrants:
    """The authorization code flow with PKCE, refresh and revocation: an `OAuthProvider` for one OAuth client.

    Example: `Connections(store, vault, {"google": UserGrants(session, client, clock=clock)})`
    """

    def __init__(
        self,
        session: HttpSession,
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
        """Return the URL of Google's consent page; it grants a refresh token also on a repeated consent."""
        query = {
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
        return f"{self._client.auth_uri}?{urlencode(query | ({'login_hint': hint} if hint else {}))}"

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> UserGrant:
        """Exchange an authorization code, which works once, for a grant."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        response = await self._post("the exchange of a code", form, repeatable=False)
        claims = self._claims(response.id_token)
        return _grant(response, account=claims.sub, name=claims.email)

    async def refresh(self, refresh_token: str) -> UserGrant:
        """Return a new access token; the refresh token stays valid."""
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return _grant(await self._post("the refresh of a token", form, repeatable=True))

    async def revoke(self, token: str) -> None:
        """Revoke the whole grant; no error when it was revoked already."""
        with suppress(GoneError):
            await self._revoke.call(form_call("the revocation", {"token": token}, repeatable=True))

    async def _post(self, act: str, form: Mapping[str, str], *, repeatable: bool) -> UserTokenAnswer:
        client = {"client_id": self._client.client_id, "client_secret": self._client.client_secret}
        call = form_call(act, {**form, **client}, repeatable=repeatable)
        return await self._token.fetch(call, UserTokenAnswer)

    def _claims(self, id_token: str) -> IdentityClaims:
        """Return whose account it is; the token came straight from Google, so no signature is checked."""
        try:
            _, body, _ = id_token.split(".")
            raw = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            claims = msgspec.json.decode(raw, type=IdentityClaims)
        except (ValueError, binascii.Error, msgspec.DecodeError):
            raise InvalidError("the exchange of a code gave no identity token that can be read") from None
        if claims.aud != self._client.client_id or claims.iss not in _ISSUERS:
            raise InvalidError("the exchange of a code gave an identity token meant for somebody else")
        return claims


def _grant(response: UserTokenAnswer, *, account: str = "", name: str = "") -> UserGrant:
    scopes = tuple(one for one in response.scope.split() if not one.endswith(("openid", "/userinfo.email")))
    return UserGrant(
        access_token=response.access_token, refresh_token=response.refresh_token, scopes=scopes,
        expires_in_s=response.expires_in, account=account, name=name,
    )  # fmt: skip
