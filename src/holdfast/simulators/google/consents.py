"""OAuth for apps: consent, authorization codes with PKCE, refresh tokens, revocation.

There is no consent page: a person consents at once to what is requested, unless told otherwise.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec

from holdfast.clock import Clock
from holdfast.simulators.google.accounts import Accounts, TokenRefusal

CODE_S: Final = 600.0
REVOKED: Final = "Token has been expired or revoked."
_EMAIL_SCOPE: Final = "https://www.googleapis.com/auth/userinfo.email"
_ALWAYS_GRANTED: Final = ("openid", _EMAIL_SCOPE)


class App(msgspec.Struct, frozen=True, kw_only=True):
    """An OAuth client."""

    client_id: str
    secret: str
    redirect_uris: frozenset[str]


class ConsentChoice(msgspec.Struct, kw_only=True):
    """What the next person does on the consent page: grant all or some scopes, or decline."""

    email: str = ""
    allow: bool = True
    scopes: list[str] | None = None


class Code(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    redirect_uri: str
    challenge: str
    email: str
    scopes: frozenset[str]
    offline: bool
    ends_at_s: float


class AppGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What a person granted an app, under one refresh token."""

    client_id: str
    email: str
    scopes: frozenset[str]


class PageRefusal(Exception):
    """An error page instead of a redirect, because the redirect URI can't be trusted."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class OAuthApps:
    """OAuth clients, and what people granted them."""

    def __init__(self, clock: Clock, accounts: Accounts) -> None:
        self._clock, self._accounts = clock, accounts
        self._apps: dict[str, App] = {}
        self._codes: dict[str, Code] = {}
        self._used_codes: dict[str, tuple[str, str]] = {}
        self._grants: dict[str, AppGrant] = {}
        self.choices: list[ConsentChoice] = []

    def add_app(self, name: str, *, redirect_uris: list[str], url: str) -> dict[str, dict[str, object]]:
        """Create an OAuth client; return its JSON file."""
        app = App(
            client_id=f"{name}.apps.googleusercontent.com", secret=f"GOCSPX-{secrets.token_urlsafe(21)}",
            redirect_uris=frozenset(redirect_uris),
        )  # fmt: skip
        self._apps[app.client_id] = app
        return {"web": {
            "client_id": app.client_id, "project_id": "simulated", "client_secret": app.secret,
            "auth_uri": f"{url}/o/oauth2/v2/auth", "token_uri": f"{url}/token", "revoke_uri": f"{url}/revoke",
            "redirect_uris": redirect_uris,
        }}  # fmt: skip

    def authorize(self, query: Mapping[str, str]) -> str:
        """The URL to redirect the person to."""
        app = self._apps.get(query.get("client_id", ""))
        if app is None:
            raise PageRefusal("invalid_client", "The OAuth client was not found.")
        redirect_uri = query.get("redirect_uri", "")
        if redirect_uri not in app.redirect_uris:
            raise PageRefusal(
                "redirect_uri_mismatch", "The redirect URI in the request does not match the ones authorized."
            )
        if query.get("response_type") != "code" or not query.get("scope", "").split():
            raise PageRefusal("invalid_request", "Required parameter is missing or invalid.")
        parameters = self._redirect_parameters(query, app, redirect_uri)
        separator = "&" if "?" in redirect_uri else "?"
        return f"{redirect_uri}{separator}{urlencode(parameters | {'state': query.get('state', '')})}"

    def _redirect_parameters(self, query: Mapping[str, str], app: App, redirect_uri: str) -> dict[str, str]:
        choice = self.choices.pop(0) if self.choices else ConsentChoice()
        email = (
            choice.email or query.get("login_hint", "") or min(self._accounts.people, default="")
        ).lower()
        if email not in self._accounts.people:
            raise PageRefusal("invalid_request", "Couldn't find your Google Account")
        if not choice.allow:
            return {"error": "access_denied"}
        if query.get("code_challenge_method", "plain") not in ("plain", "S256"):
            raise PageRefusal("invalid_request", "code_challenge_method is not supported.")
        requested = {_EMAIL_SCOPE if one == "email" else one for one in query["scope"].split()}
        granted = (
            requested
            if choice.scopes is None
            else {one for one in requested if one in {*choice.scopes, *_ALWAYS_GRANTED}}
        )
        code = f"4/0{secrets.token_urlsafe(40)}"
        self._codes[code] = Code(
            client_id=app.client_id, redirect_uri=redirect_uri, email=email, scopes=frozenset(granted),
            challenge=_challenge(query), offline=query.get("access_type") == "offline",
            ends_at_s=self._clock.monotonic() + CODE_S,
        )  # fmt: skip
        return {"code": code, "scope": " ".join(sorted(granted))}

    def exchange(self, form: Mapping[str, str]) -> dict[str, object]:
        """Exchange a code for tokens, once; a code that comes twice ends its grant."""
        app = self._app(form)
        text = form.get("code", "")
        if text in self._used_codes:
            self._end_grant(*self._used_codes[text])
        code = self._codes.pop(text, None)
        if code is None or code.client_id != app.client_id or self._clock.monotonic() >= code.ends_at_s:
            raise TokenRefusal("invalid_grant", "Malformed auth code." if code is None else "Bad Request")
        if form.get("redirect_uri") != code.redirect_uri:
            raise TokenRefusal("redirect_uri_mismatch", "Bad Request")
        _check_verifier(code, form.get("code_verifier", ""))
        self._used_codes[text] = (app.client_id, code.email)
        choice = self._token_response(app, code.email, code.scopes)
        if code.offline:
            refresh = f"1//0{secrets.token_urlsafe(60)}"
            self._grants[refresh] = AppGrant(client_id=app.client_id, email=code.email, scopes=code.scopes)
            choice["refresh_token"] = refresh
        return choice

    def refresh(self, form: Mapping[str, str]) -> dict[str, object]:
        """A new access token; the refresh token stays."""
        app = self._app(form)
        grant = self._grants.get(form.get("refresh_token", ""))
        if grant is None or grant.client_id != app.client_id or grant.email in self._accounts.revoked:
            raise TokenRefusal("invalid_grant", REVOKED)
        return self._token_response(app, grant.email, grant.scopes)

    def revoke(self, token: str) -> None:
        """End the grant of an access or refresh token."""
        grant = self._grants.get(token)
        access_token = self._accounts.token_of(token)
        if grant is not None:
            self._end_grant(grant.client_id, grant.email)
        elif access_token is not None:
            self._end_grant(access_token.client, access_token.email)
        else:
            raise TokenRefusal("invalid_token", "Token expired or revoked")

    def revoke_all(self, email: str) -> int:
        """Revoke the access of every app; return the number of grants."""
        ended = {grant.client_id for grant in self._grants.values() if grant.email == email.lower()}
        for client_id in ended:
            self._end_grant(client_id, email.lower())
        return len(ended)

    def _end_grant(self, client_id: str, email: str) -> None:
        ended_grant = (client_id, email)
        self._grants = {t: g for t, g in self._grants.items() if (g.client_id, g.email) != ended_grant}
        self._accounts.end_tokens_of(client_id, email)

    def _app(self, form: Mapping[str, str]) -> App:
        app = self._apps.get(form.get("client_id", ""))
        if app is None:
            raise TokenRefusal("invalid_client", "The OAuth client was not found.", status=401)
        if not secrets.compare_digest(app.secret.encode(), form.get("client_secret", "").encode()):
            raise TokenRefusal("invalid_client", "The provided client secret is invalid.", status=401)
        return app

    def _token_response(self, app: App, email: str, scopes: frozenset[str]) -> dict[str, object]:
        choice = self._accounts.issue(email, client=app.client_id, scopes=scopes)
        choice["scope"] = " ".join(sorted(scopes))
        if "openid" in scopes:
            choice["id_token"] = self._identity(app, email)
        return choice

    def _identity(self, app: App, email: str) -> str:
        """An identity token; its signature can't be checked here."""
        now = int(self._clock.now().timestamp())
        claims = {
            "iss": "https://accounts.google.com", "aud": app.client_id, "azp": app.client_id, "email": email,
            "sub": _subject(email), "email_verified": True, "iat": now, "exp": now + 3_600,
        }  # fmt: skip
        parts = [_url64(msgspec.json.encode(one)) for one in ({"alg": "RS256", "typ": "JWT"}, claims)]
        return ".".join([*parts, _url64(secrets.token_bytes(256))])


def _subject(email: str) -> str:
    """A person's permanent number, of 21 digits as Google's are."""
    return str(10**20 + int.from_bytes(hashlib.sha256(email.encode()).digest()[:8]) % 10**20)


def _challenge(query: Mapping[str, str]) -> str:
    """The challenge as an S256 one; a plain one is converted."""
    challenge = query.get("code_challenge", "")
    return challenge if query.get("code_challenge_method") == "S256" or not challenge else _s256(challenge)


def _check_verifier(code: Code, verifier: str) -> None:
    if code.challenge and not verifier:
        raise TokenRefusal("invalid_grant", "Missing code verifier.")
    if code.challenge and _s256(verifier) != code.challenge:
        raise TokenRefusal("invalid_grant", "Invalid code verifier.")


def _s256(verifier: str) -> str:
    return _url64(hashlib.sha256(verifier.encode()).digest())


def _url64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
