"""The deliveries of a GitHub App's webhook, and redelivery of those that failed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

import msgspec

from holdfast.delivery_log import MissedDelivery
from holdfast.providers.rest import Call, RestClient, path_of

PAGE: Final = 100
_NEXT: Final = re.compile(r'<[^>]*[?&]cursor=([^&>]+)[^>]*>;\s*rel="next"')
_DELIVERIES: Final = ("app", "hook", "deliveries")


class HookDelivery(msgspec.Struct, frozen=True):
    """One attempt; `guid` is the message's id, the same for every attempt."""

    id: int
    guid: str
    delivered_at: datetime
    status_code: int

    @property
    def failed(self) -> bool:
        return not 200 <= self.status_code < 400


class GithubDeliveryLog:
    """The App's own log, newest first; GitHub keeps three days. `rest` calls GitHub as the App, by its JWT.

    Example: `Source(name="github", verifier=verifier, delivery_log=GithubDeliveryLog(rest))`
    """

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    async def missed(self, since: datetime) -> AsyncIterator[MissedDelivery]:
        cursor: str | None = ""
        while cursor is not None:
            page, cursor = await self._page(cursor)
            for one in page:
                if one.delivered_at < since:
                    return
                if one.failed:
                    yield MissedDelivery(one.guid, str(one.id))

    async def redeliver(self, missed: MissedDelivery) -> None:
        # A second attempt is a duplicate for the inbox, so the request may be repeated.
        path = path_of(*_DELIVERIES, missed.reference, "attempts")
        await self._rest.call(Call("deliveries.redeliver", "POST", path, repeatable=True))

    async def _page(self, cursor: str) -> tuple[list[HookDelivery], str | None]:
        query = (("per_page", str(PAGE)), *([("cursor", cursor)] if cursor else []))
        response = await self._rest.call(Call("deliveries.list", "GET", path_of(*_DELIVERIES), query))
        following = _NEXT.search(response.headers.get("link", ""))
        return msgspec.json.decode(response.body, type=list[HookDelivery]), following and following[1]
