"""The HTTP session of a process, which its API clients share; opened on first use.

The client library is a third of what a command imports, so it is imported by the first who needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import aiohttp

PER_HOST_MAX: Final = 100


class HttpSession(Protocol):
    """What API clients need of a session; an `aiohttp.ClientSession` is one."""

    @property
    def request(self) -> Callable[..., AbstractAsyncContextManager[aiohttp.ClientResponse]]: ...


class LazySession:
    """A session that needs no event loop until its first request.

    It stores no cookies: its callers act for different accounts. Connections are limited for each host
    and not in total, so that a provider that hangs holds no other provider's connections.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    def request(
        self, method: str, url: Any, **options: Any
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=PER_HOST_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session.request(method, url, **options)

    async def close(self) -> None:
        """Close its connections; the next request opens it again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
