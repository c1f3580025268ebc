"""Requests and responses of Google's token endpoint."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.errors import ConfigError

TOKEN_URL = "https://oauth2.googleapis.com/token"
AUTH_URL = "https://accounts.google.com/o/oauth2/v2/auth"
REVOKE_URL = "https://oauth2.googleapis.com/revoke"


class ServiceAccountKey(msgspec.Struct, frozen=True, kw_only=True):
    """A service account's key file, as the Cloud console gives it; its repr hides the key."""

    type: str
    client_email: str
    private_key: str
    private_key_id: str = ""
    token_uri: str = TOKEN_URL

    def __repr__(self) -> str:
        return f"ServiceAccountKey({self.client_email!r})"

    @classmethod
    def read(cls, path: Path) -> ServiceAccountKey:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"the service account key {path} can't be read: {error.strerror}") from None
        return cls.parse(content)

    @classmethod
    def parse(cls, content: bytes | str) -> ServiceAccountKey:
        try:
            key = msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The decoder names the field and never shows a value.
            raise ConfigError(f"this is no service account key: {error}") from None
        if key.type != "service_account":
            raise ConfigError(f"a key of type {key.type!r} is no service account's; download its JSON key")
        return key


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A granted token; its repr hides it."""

    access_token: str
    expires_in: float
    token_type: str = "Bearer"

    def __repr__(self) -> str:
        return f"TokenAnswer(expires_in={self.expires_in})"


class TokenFault(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, in the form of RFC 6749."""

    error: str = ""
    error_description: str = ""


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True):
    """An OAuth client of the Cloud console; its repr hides the secret."""

    client_id: str
    client_secret: str
    auth_uri: str = AUTH_URL
    token_uri: str = TOKEN_URL
    revoke_uri: str = REVOKE_URL

    def __repr__(self) -> str:
        return f"OAuthClient({self.client_id!r})"

    @classmethod
    def parse(cls, content: bytes | str) -> OAuthClient:
        """Parse the JSON file that the console gives for a client."""
        try:
            kinds = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(kinds.get("web") or kinds["installed"], type=cls)
        except KeyError:
            raise ConfigError("this is no OAuth client: neither `web` nor `installed` is in it") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The decoder names the field and never shows a value.
            raise ConfigError(f"this is no OAuth client: {error}") from None


class UserTokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens for a user's code or refresh token; its repr hides them."""

    access_token: str
    expires_in: float | None = None
    refresh_token: str = ""
    scope: str = ""
    id_token: str = ""

    def __repr__(self) -> str:
        return f"UserTokenAnswer(expires_in={self.expires_in})"


class IdentityClaims(msgspec.Struct, frozen=True, kw_only=True):
    """A user's identity, from an identity token."""

    iss: str
    aud: str
    sub: str
    email: str = ""


class UserGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A user's grant; its repr hides the tokens. A refresh leaves `account` and `name` empty."""

    access_token: str
    refresh_token: str = ""
    expires_in_s: float | None = None
    scopes: tuple[str, ...] = ()
    account: str = ""
    name: str = ""

    def __repr__(self) -> str:
        return f"UserGrant({self.name or self.account!r}, expires_in_s={self.expires_in_s})"
