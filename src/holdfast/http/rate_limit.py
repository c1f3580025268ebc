"""Request rate limits: a token bucket for each caller and for each address.

Buckets live in the process: with several processes behind one address, each grants its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from holdfast.clock import Clock
from holdfast.config import RequestLimits
from holdfast.errors import TooManyRequestsError
from holdfast.token_bucket import TokenBucket

KEYS_MAX: Final = 20_000
_V6_SITE_BITS: Final = 64


class Buckets:
    """A token bucket for each of the keys used last.

    Example: `wait_s = Buckets(per_s=2, burst=10, clock=clock).take("ann")`
    """

    def __init__(self, *, per_s: float, burst: int, clock: Clock, keys_max: int = KEYS_MAX) -> None:
        self._per_s, self._burst, self._clock, self._keys_max = per_s, burst, clock, keys_max
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, key: str) -> float:
        """Return 0 where a token was taken; else the seconds until there is one."""
        now = self._clock.monotonic()
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucket(per_s=self._per_s, burst=self._burst, now=now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._keys_max:
            # The least recently used: its bucket is the likeliest to be full again.
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if bucket.take(now) else bucket.ready_at(now) - now


class RateLimiter:
    """One process's limits: authenticated callers by name, all others by address."""

    def __init__(self, limits: RequestLimits, *, clock: Clock) -> None:
        self._callers = Buckets(per_s=limits.caller_per_s, burst=limits.caller_burst, clock=clock)
        self._addresses = Buckets(per_s=limits.address_per_s, burst=limits.address_burst, clock=clock)

    def pass_caller(self, name: str) -> None:
        _admit(self._callers.take(name), "this caller")

    def pass_stranger(self, address: str) -> None:
        _admit(self._addresses.take(address), "this address without credentials that count")


def _admit(wait_s: float, who: str) -> None:
    if wait_s > 0:
        raise TooManyRequestsError(f"{who} sends too many requests; wait and try again", after_s=wait_s)


class Addresses:
    """Determines whose a request is, believing only trusted proxies: the one key of all limits by address.

    An IPv6 customer's network of 2⁶⁴ addresses is one.

    Example: `Addresses(["10.0.0.0/8"]).of(scope)` gives `203.0.113.7` or `2001:db8:1:2::/64`
    """

    def __init__(self, proxies: Sequence[str]) -> None:
        self._trusted = [ipaddress.ip_network(one) for one in proxies]

    def of(self, scope: Any) -> str:
        return _site_of(self._client(scope))

    def _client(self, scope: Any) -> str:
        peer = _plain((scope.get("client") or ("",))[0])
        if not self._trusted or not self._is_trusted(peer):
            return peer
        # From the nearest hop outwards: what is left of an untrusted hop may be forged.
        for hop in reversed(_forwarded(scope)):
            peer = hop
            if not self._is_trusted(hop):
                break
        return peer

    def all_trusted(self, scope: Any) -> bool:
        """Whether a request comes from a trusted proxy itself, not from somebody behind one."""
        return bool(self._trusted) and self._is_trusted(self._client(scope))

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._trusted)


def _forwarded(scope: Any) -> list[str]:
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return [_plain(hop.strip()) for hop in ",".join(values).split(",") if hop.strip()]


@lru_cache(KEYS_MAX)
def _plain(hop: str) -> str:
    """Return the address without a port, and a mapped IPv4 address in its own form."""
    host = hop
    if hop.startswith("["):
        host = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        host = hop.partition(":")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return hop
    return str(getattr(found, "ipv4_mapped", None) or found)


@lru_cache(KEYS_MAX)
def _site_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((int(found), _V6_SITE_BITS), strict=False))
