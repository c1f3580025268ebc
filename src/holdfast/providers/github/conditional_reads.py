"""Conditional reads: what was read before is asked for with its ETag."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

import msgspec

from holdfast.providers.rest import Call, RestClient, decode_body

CACHED_MAX: Final = 200
CACHED_BYTES_MAX: Final = 100_000
T = TypeVar("T")


class ConditionalReads:
    """Reads through a client and remembers the last bodies; a 304 does not count for the rate limit."""

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest
        self._cached: OrderedDict[tuple[str, tuple[tuple[str, str], ...]], tuple[str, bytes]] = OrderedDict()

    async def fetch(self, call: Call, kind: type[T]) -> T:
        """Return what the call reads, from memory where the API says that it has not changed."""
        key = (call.path, call.query)
        etag, body = self._cached.pop(key, ("", b""))
        headers = {**call.headers, "If-None-Match": etag} if etag else call.headers
        conditional = msgspec.structs.replace(call, headers=headers, expected=(304,) if etag else ())
        response = await self._rest.call(conditional)
        if response.status != 304:
            etag, body = response.headers.get("etag", ""), response.body
        if etag and len(body) <= CACHED_BYTES_MAX:
            self._cached[key] = (etag, body)
            if len(self._cached) > CACHED_MAX:
                self._cached.popitem(last=False)
        return decode_body(call, body, kind)
