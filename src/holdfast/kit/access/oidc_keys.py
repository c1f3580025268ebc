"""An issuer's public keys: fetched on demand, cached, refreshed, usable for a while when it is down."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
import structlog
from joserfc.errors import JoseError
from joserfc.jwk import Key, import_key

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, RetryLaterError

log = structlog.get_logger("holdfast.oidc")

Fetch = Callable[[], Awaitable[Mapping[str, Any]]]
KEYS_MAX: Final = 100
# Shorter ones can be factored.
RSA_BITS_MIN: Final = 2_048
_KINDS: Final = ("RSA", "EC")


class KeyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Cache times of keys: fresh, still usable while refreshing fails, and the least time between fetches."""

    fresh_s: float = 3_600.0
    usable_s: float = 86_400.0
    ask_again_s: float = 60.0


USUAL: Final = KeyPolicy()


class IssuerKeys:
    """One issuer's keys by id.

    Concurrent callers share one fetch; unknown ids cause a fetch at most every `ask_again_s`.

    Example: `key = await IssuerKeys(fetch, clock=clock).find("2f5a")`
    """

    def __init__(self, fetch: Fetch, *, clock: Clock, times: KeyPolicy = USUAL) -> None:
        self._fetch, self._clock, self._times = fetch, clock, times
        self._keys: dict[str, Key] = {}
        self._fetched_s: float | None = None
        self._last_fetch_s: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, id: str) -> Key | None:
        """The key with this id, None where there is none; `RetryLaterError` while it can't be fetched."""
        if id not in self._keys or self._age_s() >= self._times.fresh_s:
            self._start_fetch()
        # A known key stays in use while it is refreshed; only an unknown one is worth waiting for.
        if self._fetching is not None and (id not in self._keys or self._age_s() >= self._times.usable_s):
            await asyncio.shield(self._fetching)
        if self._age_s() >= self._times.usable_s:
            raise RetryLaterError(
                "the issuer's keys can't be had now; try again later", after_s=self._times.ask_again_s
            )
        return self._keys.get(id)

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock.monotonic() - self._fetched_s

    def _start_fetch(self) -> None:
        now_s = self._clock.monotonic()
        if self._fetching is not None or (
            self._last_fetch_s is not None and now_s - self._last_fetch_s < self._times.ask_again_s
        ):
            return
        self._last_fetch_s = now_s
        self._fetching = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            keys = parse_keys(await self._fetch())
            if keys:
                self._keys, self._fetched_s = keys, self._clock.monotonic()
            else:
                log.warning("issuer returned no usable key; the old ones stay in use")
        except HoldfastError as fault:
            log.warning("issuer keys could not be fetched", code=fault.code, error=fault.message)
        finally:
            self._fetching = None


def parse_keys(document: Mapping[str, Any]) -> dict[str, Key]:
    """The public signing keys of a JWKS document; keys of another kind and broken ones are skipped."""
    keys: dict[str, Key] = {}
    entries = document.get("keys")
    for entry in entries[:KEYS_MAX] if isinstance(entries, list) else ():
        id = entry.get("kid") if isinstance(entry, dict) else None
        if not isinstance(id, str) or entry.get("kty") not in _KINDS or entry.get("use", "sig") != "sig":
            continue
        try:
            if entry["kty"] == "RSA" and _bits(entry["n"]) < RSA_BITS_MIN:
                log.warning("issuer key refused: too short", kid=id)
                continue
            keys[id] = import_key(entry)
            # Read now: the library would report a broken key only at its first use.
            keys[id].public_key  # noqa: B018
        except (JoseError, ValueError, TypeError, KeyError):
            keys.pop(id, None)
    return keys


def _bits(modulus: str) -> int:
    """The length of a modulus in Base64url."""
    return int.from_bytes(base64.urlsafe_b64decode(modulus + "=" * (-len(modulus) % 4))).bit_length()
