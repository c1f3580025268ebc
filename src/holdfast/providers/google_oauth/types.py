"""What Google's token endpoint takes and gives."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.errors import ConfigError

TOKEN_URL = "https://oauth2.googleapis.com/token"


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
        """The key in a file."""
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"the service account key {path} can't be read: {error.strerror}") from None
        return cls.parse(content)

    @classmethod
    def parse(cls, content: bytes | str) -> ServiceAccountKey:
        """The key in a file's content."""
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
