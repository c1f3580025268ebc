"""An issuer's public keys: fetched when needed, kept, renewed, good for a while when it is away."""

from __future__ import annotations

import asyncio
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
_KINDS: Final = ("RSA", "EC")


class KeyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long keys are taken as they are, how long they stay usable when they can't be renewed, and how
    soon the issuer is asked again, whatever is sent here."""

    fresh_s: float = 3_600.0
    usable_s: float = 86_400.0
    ask_again_s: float = 60.0


USUAL: Final = KeyPolicy()


class IssuerKeys:
    """One issuer's keys by their ids.

    However many ask at once, the issuer is asked once; however many unknown ids are tried, it is asked at
    most every `ask_again_s`.

    Example: `key = await IssuerKeys(fetch, clock=clock).find("2f5a")`
    """

    def __init__(self, fetch: Fetch, *, clock: Clock, times: KeyPolicy = USUAL) -> None:
        self._fetch, self._clock, self._times = fetch, clock, times
        self._keys: dict[str, Key] = {}
        self._fetched_s: float | None = None
        self._asked_s: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def find(self, id: str) -> Key | None:
        """The key of that id; None where the issuer has none; `RetryLaterError` while it can't be asked."""
        if id not in self._keys or self._age_s() >= self._times.fresh_s:
            self._ask()
        # A known key goes on being used while it is renewed; only an unknown one is worth waiting for.
        if self._asking is not None and (id not in self._keys or self._age_s() >= self._times.usable_s):
            await asyncio.shield(self._asking)
        if self._age_s() >= self._times.usable_s:
            raise RetryLaterError(
                "the issuer's keys can't be had now; try again later", after_s=self._times.ask_again_s
            )
        return self._keys.get(id)

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock.monotonic() - self._fetched_s

    def _ask(self) -> None:
        now_s = self._clock.monotonic()
        if self._asking is not None or (
            self._asked_s is not None and now_s - self._asked_s < self._times.ask_again_s
        ):
            return
        self._asked_s = now_s
        self._asking = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        try:
            found = parse_keys(await self._fetch())
            if found:
                self._keys, self._fetched_s = found, self._clock.monotonic()
            else:
                log.warning("an issuer gave no usable key; the old ones stay")
        except HoldfastError as fault:
            log.warning("an issuer's keys could not be fetched", code=fault.code, error=fault.message)
        finally:
            self._asking = None


def parse_keys(answer: Mapping[str, Any]) -> dict[str, Key]:
    """The public signing keys in the answer; what is of another kind or broken is passed over."""
    found: dict[str, Key] = {}
    listed = answer.get("keys")
    for one in listed[:KEYS_MAX] if isinstance(listed, list) else ():
        id = one.get("kid") if isinstance(one, dict) else None
        if not isinstance(id, str) or one.get("kty") not in _KINDS or one.get("use", "sig") != "sig":
            continue
        try:
            found[id] = import_key(one)
            # Read now: the library would find a broken key only when it is first used.
            found[id].public_key  # noqa: B018
        except (JoseError, ValueError, TypeError, KeyError):
            found.pop(id, None)
    return found
