"""A microcache: for a second or so, the same public response for all who ask the same without credentials.

It spares routing, dependencies and encoding where thousands of strangers look at one page. A route says for
how long by its `microcache_s`; only a 200 that is `public` and sets no cookie is kept, and only for requests
without cookie, credentials and conditions. Rate limits, metrics and request ids are as for any other request.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.clock import Clock

ENTRIES_MAX: Final = 256
BYTES_MAX: Final = 16_000_000
MICROCACHE_S: Final = "microcache_s"
_PERSONAL: Final = frozenset({b"cookie", b"authorization", b"if-none-match", b"range"})
_VARYING: Final = frozenset({b"accept-encoding", b"host"})
Key = tuple[bytes | str, ...]
Headers = Sequence[tuple[bytes, bytes]]


class KeptResponse(msgspec.Struct, frozen=True):
    """A response without the headers that each request has of its own."""

    headers: Headers
    body: bytes
    route: str
    until: float


class Microcache:
    """Responses of this process by what was asked.

    Example: `kept = microcache.find(key_of(scope))`
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Key, KeptResponse] = {}
        self._bytes = 0

    def find(self, key: Key | None) -> KeptResponse | None:
        kept = self._kept.get(key) if key is not None else None
        return kept if kept is not None and self._clock.monotonic() < kept.until else None

    def keep(self, key: Key, start: Mapping[str, Any], body: bytes, *, route: str, seconds: float) -> None:
        """Keep a response if it is the same for everybody."""
        headers = dict(start["headers"])
        public = headers.get(b"cache-control", b"").startswith(b"public")
        if start["status"] != 200 or not public or b"set-cookie" in headers:
            return
        self._bytes += len(body)
        # Nothing lives longer than a moment, so that dropping all of it costs little.
        if len(self._kept) >= ENTRIES_MAX or self._bytes > BYTES_MAX:
            self._kept.clear()
            self._bytes = len(body)
        own = [pair for pair in start["headers"] if pair[0] != b"x-request-id"]
        self._kept[key] = KeptResponse(own, body, route, self._clock.monotonic() + seconds)


def key_of(scope: MutableMapping[str, Any]) -> Key | None:
    """What a GET asks for; None where the answer may be for this caller alone."""
    if scope["method"] != "GET":
        return None
    varying = []
    for name, value in scope["headers"]:
        if name in _PERSONAL:
            return None
        if name in _VARYING:
            varying.append(name + value)
    return (scope["path"], scope["query_string"], *varying)
