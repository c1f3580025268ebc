"""The people, clients, codes and keys of a simulated identity provider."""

from __future__ import annotations

import base64
import hashlib
import secrets
import warnings
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import RSAKey

from holdfast.clock import Clock
from holdfast.simulators.server import Command

CODE_S: Final = 60.0
TOKEN_S: Final = 600


class IdentityPerson(msgspec.Struct, frozen=True, kw_only=True):
    email: str
    name: str
    verified: bool

    @property
    def subject(self) -> str:
        return hashlib.sha256(self.email.encode()).hexdigest()[:20]


class IdentityClient(msgspec.Struct, frozen=True, kw_only=True):
    secret: str
    redirect_uris: tuple[str, ...]


class IssuedCode(msgspec.Struct, frozen=True, kw_only=True):
    client_id: str
    redirect_uri: str
    challenge: str
    nonce: str
    email: str
    ends_at_s: float


class RequestRefusal(Exception):
    """An OAuth error code, as the provider answers it."""


class IdentityState:
    """Everything the provider knows; `skew_s` is how far its clock is off."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.issuer = clock, ""
        self.clear()

    def clear(self) -> None:
        self.people: dict[str, IdentityPerson] = {}
        self.clients: dict[str, IdentityClient] = {}
        self.choices: list[str] = []
        self.skew_s = 0.0
        self._codes: dict[str, IssuedCode] = {}
        self._keys: list[RSAKey] = []

    @property
    def key(self) -> RSAKey:
        if not self._keys:
            self.rotate()
        return self._keys[-1]

    def rotate(self, bits: int = 2048) -> None:
        """Sign with a new key from now on; the former ones are no longer published."""
        kid = secrets.token_hex(8)
        with warnings.catch_warnings():
            # Short keys are made on purpose, to see them refused.
            warnings.simplefilter("ignore", SecurityWarning)
            self._keys = [RSAKey.generate_key(bits, parameters={"kid": kid}, private=True)]

    def check_client(self, query: Mapping[str, str]) -> None:
        """Refuse a request whose redirect can't be trusted."""
        client = self.clients.get(query.get("client_id", ""))
        if client is None or query.get("redirect_uri", "") not in client.redirect_uris:
            raise RequestRefusal("invalid_request")
        if query.get("response_type") != "code" or "openid" not in query.get("scope", "").split():
            raise RequestRefusal("invalid_scope")
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
            raise RequestRefusal("invalid_request")

    def issue_code(self, query: Mapping[str, str], email: str) -> str:
        """A code for a person who chose to sign in."""
        code = secrets.token_urlsafe(24)
        self._codes[code] = IssuedCode(
            client_id=query["client_id"], redirect_uri=query["redirect_uri"], nonce=query.get("nonce", ""),
            challenge=query["code_challenge"], email=self.people[email].email,
            ends_at_s=self.clock.monotonic() + CODE_S,
        )  # fmt: skip
        return code

    def exchange(self, form: Mapping[str, str], secret: str) -> dict[str, object]:
        """Tokens for a code, once."""
        client = self.clients.get(form.get("client_id", ""))
        if client is None or not secrets.compare_digest(client.secret, secret):
            raise RequestRefusal("invalid_client")
        code = self._codes.pop(form.get("code", ""), None)
        if code is None or code.client_id != form["client_id"] or self.clock.monotonic() >= code.ends_at_s:
            raise RequestRefusal("invalid_grant")
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if code.challenge != challenge or code.redirect_uri != form.get("redirect_uri"):
            raise RequestRefusal("invalid_grant")
        token = self.token(code.email, audience=code.client_id, nonce=code.nonce)
        access = secrets.token_urlsafe(24)
        return {"access_token": access, "token_type": "Bearer", "expires_in": TOKEN_S, "id_token": token}

    def token(self, email: str, *, audience: str, **more: Any) -> str:
        person, now = self.people[email], int(self.clock.now().timestamp() + self.skew_s)
        claims = {
            "iss": self.issuer, "sub": person.subject, "aud": audience, "iat": now, "exp": now + TOKEN_S,
            "email": person.email, "email_verified": person.verified, "name": person.name, **more,
        }  # fmt: skip
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key, algorithms=["RS256"])


class RegisterPerson(Command[IdentityState], frozen=True):
    """Somebody who has an account: {"email", "name", "verified"}."""

    email: str
    name: str = ""
    verified: bool = True

    def run(self, state: IdentityState) -> object:
        email = self.email.lower()
        state.people[email] = IdentityPerson(email=email, name=self.name, verified=self.verified)
        return {"subject": state.people[email].subject}


class RegisterClient(Command[IdentityState], frozen=True):
    """Register a server: {"clientId", "secret", "redirectUris"}."""

    client_id: str
    redirect_uris: tuple[str, ...]
    secret: str = ""

    def run(self, state: IdentityState) -> object:
        state.clients[self.client_id] = IdentityClient(secret=self.secret, redirect_uris=self.redirect_uris)
        return {}


class ChooseNext(Command[IdentityState], frozen=True):
    """The next person at the page is this one, without being asked; empty: they decline."""

    email: str = ""

    def run(self, state: IdentityState) -> object:
        state.choices.append(self.email.lower())
        return {}


class RotateKeys(Command[IdentityState], frozen=True):
    """Sign with a new key: {"bits"}."""

    bits: int = 2048

    def run(self, state: IdentityState) -> object:
        state.rotate(self.bits)
        return {"kid": state.key.kid}


class SetSkew(Command[IdentityState], frozen=True):
    """The provider's clock is this far ahead of the right time: {"seconds"}."""

    seconds: float

    def run(self, state: IdentityState) -> object:
        state.skew_s = self.seconds
        return {}
