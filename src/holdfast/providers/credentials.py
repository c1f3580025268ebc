"""Credentials of API clients: where a token comes from, and where it goes in a request.

| API | source | placement |
|---|---|---|
| Google | `ServiceAccount.tokens(…)`, `Connections.tokens(…)` | `BEARER` |
| GitHub App | `CachedTokens` of JWTs by `sign_jwt`, or of installation tokens | `BEARER`, `TOKEN` |
| Telegram | `FixedToken(token)` | `in_path("bot")` |
| any API key | `FixedToken(key)` | `in_header("X-API-Key")` |
| public | None | |
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from holdfast.clock import Clock
from holdfast.errors import ConfigError, RetryLaterError

# A token is renewed this long before it ends, and used this close to its end while renewing fails.
EARLY_S: Final = 300.0
LAST_S: Final = 10.0


class TokenSource(Protocol):
    """Gives a client the token for its next call."""

    async def __call__(self, *, rejected: str = "") -> str:
        """Return a token other than `rejected`, which the API has just refused; the same if there is none."""
        ...


class TokenPlacement(msgspec.Struct, frozen=True):
    """The place of a token in a request: a header, or the first segment of the path."""

    prefix: str
    header: str = ""

    def headers(self, token: str) -> dict[str, str]:
        return {self.header: self.prefix + token} if self.header else {}

    def path(self, token: str, path: str) -> str:
        return path if self.header else f"{self.prefix}{quote(token, safe=':')}/{path}"


def in_header(name: str, prefix: str = "") -> TokenPlacement:
    """Place the token in this header, after a prefix."""
    return TokenPlacement(prefix, name)


def in_path(prefix: str = "") -> TokenPlacement:
    """Place the token before the call's path: Telegram's `bot<token>/getMe` has `in_path("bot")`."""
    return TokenPlacement(prefix)


BEARER: Final = in_header("Authorization", "Bearer ")
TOKEN: Final = in_header("Authorization", "token ")


class FixedToken:
    """A token that does not change while the process runs; its repr hides it.

    Example: `RestClient(session, url, tokens=FixedToken(key), placement=in_header("X-API-Key"), ...)`
    """

    def __init__(self, token: str) -> None:
        self._token = token

    async def __call__(self, *, rejected: str = "") -> str:
        return self._token


class AccessToken(msgspec.Struct, frozen=True):
    """A token with the seconds it lasts from when it was requested; its repr hides it."""

    token: str
    lasts_s: float

    def __repr__(self) -> str:
        return f"AccessToken(lasts_s={self.lasts_s})"


class CachedTokens:
    """A token source that caches one token, renews it early, and shares one request among all who wait.

    Example: `tokens = CachedTokens(lambda: client.installation_token(42), clock=clock)`
    """

    def __init__(
        self, request: Callable[[], Awaitable[AccessToken]], *, clock: Clock, early_s: float = EARLY_S
    ) -> None:
        self._request, self._clock, self._early_s = request, clock, early_s
        self._token, self._ends_at_s = "", 0.0
        self._renewing: asyncio.Task[str] | None = None

    async def __call__(self, *, rejected: str = "") -> str:
        if self._token == rejected:
            self._token = ""
        if self._lasts(self._early_s):
            return self._token
        try:
            return await self._shared_renewal()
        except RetryLaterError:
            if self._lasts(LAST_S):
                return self._token
            raise

    def _lasts(self, seconds: float) -> bool:
        return bool(self._token) and self._clock.monotonic() + seconds < self._ends_at_s

    async def _shared_renewal(self) -> str:
        if self._renewing is None:
            self._renewing = asyncio.ensure_future(self._renew())
            self._renewing.add_done_callback(self._ended)
        # A caller that is cancelled must not cancel the request of the others.
        return await asyncio.shield(self._renewing)

    async def _renew(self) -> str:
        asked_at_s = self._clock.monotonic()
        granted = await self._request()
        self._token, self._ends_at_s = granted.token, asked_at_s + granted.lasts_s
        return self._token

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._renewing = None
        if not task.cancelled():
            # Retrieved here, or a failure nobody waits for any more would be logged as never retrieved.
            task.exception()


def sign_jwt(claims: Mapping[str, Any], private_key: str, *, owner: str, key_id: str = "") -> str:
    """Return the claims as a JWT signed with RS256; `owner` names the key in errors."""
    header = {"alg": "RS256", "typ": "JWT"} | ({"kid": key_id} if key_id else {})
    return jwt.encode(header, dict(claims), rsa_key(private_key, owner))


# Checking a key takes a tenth of a second, and several clients may share one.
@functools.lru_cache(maxsize=8)
def rsa_key(private_key: str, owner: str) -> RSAKey:
    """Return the key of a PEM text; ConfigError for anything that can't sign."""
    try:
        return RSAKey.import_key(private_key)
    except ValueError:
        raise ConfigError(f"the private key of {owner} is no PEM key; download it again") from None
    except JoseError:
        raise ConfigError(f"the private key of {owner} is not an RSA key") from None
