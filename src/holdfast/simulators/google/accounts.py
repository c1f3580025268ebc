"""People, service accounts and access tokens; the token endpoint verifies assertions as Google's does."""

from __future__ import annotations

import base64
import binascii
import functools
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from holdfast.clock import Clock
from holdfast.simulators.google.refusals import Refusal

GOOGLE_AUDIENCE: Final = "https://oauth2.googleapis.com/token"
GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_S_MAX: Final = 3_600
SKEW_S: Final = 300
_TIMEFRAME: Final = (
    "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
    "Check your iat and exp values in the JWT claim."
)
_UNAUTHORIZED: Final = (
    "Client is unauthorized to retrieve access tokens using this method, or client not authorized for any of "
    "the scopes requested."
)


class TokenRefusal(Exception):
    """An error of the token endpoint."""

    def __init__(self, error: str, description: str, *, status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.description = description
        self.status = status


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An access token: whom it speaks for (`email`), the client that requested it, its scopes."""

    email: str
    client: str
    scopes: frozenset[str]
    ends_at_s: float

    @property
    def delegated(self) -> bool:
        return self.email != self.client


class Client(msgspec.Struct, kw_only=True):
    """A service account: its public key, and the scopes that were delegated to it (None: any)."""

    email: str
    key_id: str
    public_key: RSAPublicKey
    delegated: frozenset[str] | None
    revoked: bool = False


class _JwtHeader(msgspec.Struct):
    alg: str = ""
    kid: str = ""


class _JwtClaims(msgspec.Struct):
    iss: str = ""
    scope: str = ""
    aud: str = ""
    iat: int = 0
    exp: int = 0
    sub: str = ""


class Accounts:
    """All accounts, and the tokens issued to them."""

    def __init__(self, clock: Clock, *, token_s: float = 3_600.0) -> None:
        self._clock = clock
        self._token_s = token_s
        self._clients: dict[str, Client] = {}
        self._tokens: dict[str, Token] = {}
        self.people: set[str] = set()
        self.revoked: set[str] = set()

    def add_client(self, name: str, *, token_url: str, scopes: list[str] | None = None) -> dict[str, str]:
        """Create a service account; return its key file."""
        email, key_id = f"{name}@simulated.iam.gserviceaccount.com", secrets.token_hex(20)
        private = _private_key(email)
        delegated = None if scopes is None else frozenset(scopes)
        self._clients[email] = Client(
            email=email, key_id=key_id, public_key=private.public_key(), delegated=delegated
        )
        return {
            "type": "service_account",
            "project_id": "simulated",
            "private_key_id": key_id,
            "private_key": _pem(private),
            "client_email": email,
            "client_id": str(secrets.randbelow(10**21)),
            "token_uri": token_url,
        }

    def revoke(self, email: str) -> None:
        """Revoke a person's grants or a service account: old tokens stop working, new ones are refused."""
        if email in self._clients:
            self._clients[email].revoked = True
        elif email in self.people:
            self.revoked.add(email)
        else:
            raise LookupError(f"nobody is called {email}")

    def restore(self, email: str) -> None:
        """Undo a revocation; old tokens stay invalid."""
        self._tokens = {text: token for text, token in self._tokens.items() if token.email != email}
        self.revoked.discard(email)
        if email in self._clients:
            self._clients[email].revoked = False

    def end_tokens(self) -> None:
        self._tokens.clear()

    def grant(self, form: Mapping[str, str], *, own_url: str) -> dict[str, object]:
        """A token for a signed assertion."""
        if form.get("grant_type") != GRANT:
            raise TokenRefusal("unsupported_grant_type", "Invalid grant_type: " + form.get("grant_type", ""))
        claims, client = self._verify(form.get("assertion", ""))
        if claims.aud not in (own_url, GOOGLE_AUDIENCE):
            raise TokenRefusal("invalid_grant", "Invalid JWT: Failed audience check.")
        self._check_times(claims)
        scopes = frozenset(claims.scope.split())
        if not scopes:
            raise TokenRefusal("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        self._check_subject(claims, client, scopes)
        return self.issue((claims.sub or client.email).lower(), client=client.email, scopes=scopes)

    def issue(self, email: str, *, client: str, scopes: frozenset[str]) -> dict[str, object]:
        """Issue an access token, as the response of the token endpoint."""
        text = "ya29.simulated-" + secrets.token_urlsafe(32)
        ends_at_s = self._clock.monotonic() + self._token_s
        self._tokens[text] = Token(email=email, client=client, scopes=scopes, ends_at_s=ends_at_s)
        return {"access_token": text, "expires_in": int(self._token_s), "token_type": "Bearer"}

    def token_of(self, text: str) -> Token | None:
        """The issued token with this text, if any."""
        return self._tokens.get(text)

    def end_tokens_of(self, client: str, email: str) -> None:
        """Invalidate the client's tokens for this person."""
        revoked = (client, email)
        self._tokens = {text: t for text, t in self._tokens.items() if (t.client, t.email) != revoked}

    def authenticate(self, authorization: str, *, any_of: frozenset[str]) -> Token:
        """The caller's token; 401 for an invalid one, 403 where its scopes do not suffice."""
        scheme, _, text = authorization.partition(" ")
        token = self._tokens.get(text)
        if scheme != "Bearer" or token is None or not self._is_valid(token):
            raise Refusal(401, "authError", "Invalid Credentials", where="Authorization")
        if not token.scopes & any_of:
            message = "Request had insufficient authentication scopes."
            raise Refusal(403, "insufficientPermissions", message)
        return token

    def _is_valid(self, token: Token) -> bool:
        alive = self._clock.monotonic() < token.ends_at_s
        client = self._clients.get(token.client)  # an app that people let in is none of these
        return alive and token.email not in self.revoked and not (client and client.revoked)

    def _verify(self, assertion: str) -> tuple[_JwtClaims, Client]:
        try:
            raw_header, body, signature = (_bytes(part) for part in assertion.split("."))
            header = msgspec.json.decode(raw_header, type=_JwtHeader)
            claims = msgspec.json.decode(body, type=_JwtClaims)
        except (ValueError, msgspec.DecodeError):
            raise TokenRefusal("invalid_grant", "Bad Request") from None
        client = self._clients.get(claims.iss)
        if client is None or client.revoked:
            raise TokenRefusal("invalid_grant", "Invalid grant: account not found")
        signed = assertion.rpartition(".")[0].encode()
        if header.alg != "RS256" or header.kid != client.key_id or not _is_signed(client, signature, signed):
            raise TokenRefusal("invalid_grant", "Invalid JWT Signature.")
        return claims, client

    def _check_times(self, claims: _JwtClaims) -> None:
        now = self._clock.now().timestamp()
        in_time = claims.iat - SKEW_S <= now <= claims.exp + SKEW_S
        if not in_time or not 0 < claims.exp - claims.iat <= ASSERTION_S_MAX:
            raise TokenRefusal("invalid_grant", _TIMEFRAME)

    def _check_subject(self, claims: _JwtClaims, client: Client, scopes: frozenset[str]) -> None:
        if not claims.sub:
            return
        if client.delegated is not None and not scopes <= client.delegated:
            raise TokenRefusal("unauthorized_client", _UNAUTHORIZED, status=401)
        if claims.sub.lower() not in self.people:
            raise TokenRefusal("invalid_grant", "Invalid email or User ID")
        if claims.sub.lower() in self.revoked:
            raise TokenRefusal("invalid_grant", "Token has been expired or revoked.")


@functools.cache
def _private_key(email: str) -> RSAPrivateKey:
    # Generating a key is slow, and each test starts a simulator.
    return generate_private_key(public_exponent=65537, key_size=2048)


def _is_signed(client: Client, signature: bytes, signed: bytes) -> bool:
    try:
        client.public_key.verify(signature, signed, PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def _bytes(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error


def _pem(key: RSAPrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
