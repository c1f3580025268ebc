"""Hacker News: items and lists from the API, sign-in on the site."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from holdfast.clock import Clock
from holdfast.errors import ConfigError, HoldfastError, RetryLaterError, TooManyRequestsError
from holdfast.net import HttpSession
from holdfast.providers.hackernews.types import Item, StoryList, Updates
from holdfast.providers.rest import Call, CallLimits, RestClient, RestResponse, fault_by_status, path_of

API_URL: Final = "https://hacker-news.firebaseio.com/v0"
SITE_URL: Final = "https://news.ycombinator.com"
SIGNED_IN_PATH: Final = "/news"
# The site shows this page in place of the sign-in form to addresses that tried too often.
_CHALLENGE: Final = b"Validation required"
_REFUSED: Final = b"Bad login"
CALL_S: Final = 10.0


def fault_of(act: str, response: RestResponse) -> HoldfastError:
    """Return what a refusal by the API or the site means for the caller."""
    try:
        reason = msgspec.json.decode(response.body, type=_ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        reason = ""
    return fault_by_status(act, response, reason)


class _ErrorBody(msgspec.Struct):
    error: str = ""


class HackerNewsApi:
    """The read-only API; it has no credentials.

    Example: `item = await HackerNewsApi(session, clock=clock).item(8863)`
    """

    def __init__(
        self, session: HttpSession, *, clock: Clock, base_url: str = API_URL, call_s: float = CALL_S
    ) -> None:
        limits = CallLimits(call_s=call_s, attempts_max=2, wait_s=0.2, wait_s_max=2.0)
        self._rest = RestClient(session, base_url, fault_of=fault_of, clock=clock, limits=limits)

    async def item(self, item_id: int) -> Item | None:
        """Return an item; None where the API has none of this id, or not yet."""
        call = Call("item", "GET", path_of("item", f"{item_id}.json"))
        found: Item | None = await self._rest.fetch(call, Item | None)  # type: ignore[arg-type]
        return found

    async def ids(self, name: StoryList) -> list[int]:
        """Return the ids of a list: up to 500 new or top stories, 200 best ones."""
        found: list[int] | None = await self._rest.fetch(
            Call(name, "GET", path_of(f"{name}.json")),
            list[int] | None,  # type: ignore[arg-type]
        )
        return found or []

    async def max_item_id(self) -> int:
        """Return the largest id there is."""
        return await self._rest.fetch(Call("maxitem", "GET", path_of("maxitem.json")), int)

    async def updates(self) -> Updates:
        """Return the items and profiles that changed lately."""
        return await self._rest.fetch(Call("updates", "GET", path_of("updates.json")), Updates)


class HackerNewsSite:
    """The site itself, for signing in with somebody's own name and password; neither is kept.

    Example: `if await site.sign_in("pg", password): ...`
    """

    def __init__(
        self, session: HttpSession, *, clock: Clock, base_url: str = SITE_URL, call_s: float = CALL_S
    ) -> None:
        # Each attempt counts at the site, so there is one.
        limits = CallLimits(call_s=call_s, attempts_max=1, response_bytes_max=1024 * 1024)
        self._rest = RestClient(session, base_url, fault_of=fault_of, clock=clock, limits=limits)

    async def sign_in(self, account: str, password: str) -> bool:
        """Whether the site lets this account in, which it says by a redirect to /news.

        TooManyRequestsError when the site wants proof of a person, RetryLaterError when it gives no clear
        response.
        """
        form = urlencode({"acct": account, "pw": password, "goto": "news"}).encode()
        call = Call(
            "sign-in", "POST", "login", body=form, content_type="application/x-www-form-urlencoded",
            expected=(302, 303),
        )  # fmt: skip
        try:
            response = await self._rest.call(call)
        except ConfigError:
            raise RetryLaterError("Hacker News gave no clear response to the sign-in", after_s=60) from None
        if 300 <= response.status < 400:
            return urlsplit(response.headers.get("location", "")).path.lstrip("/") == SIGNED_IN_PATH[1:]
        if _CHALLENGE in response.body:
            raise TooManyRequestsError(
                "Hacker News wants proof of a person; sign in on its own site, then here again", after_s=900
            )
        if _REFUSED in response.body:
            return False
        raise RetryLaterError("Hacker News gave no clear response to the sign-in", after_s=60)
