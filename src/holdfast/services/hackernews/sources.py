"""Hacker News as the service uses it: items many at a time, lists, sign-in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast.clock import Clock
from holdfast.errors import ConfigError, HoldfastError
from holdfast.net import HttpSession
from holdfast.providers.hackernews import HackerNewsApi, HackerNewsSite, Item, StoryList
from holdfast.services.hackernews.settings import HackerNewsSettings

LISTS: Final[tuple[StoryList, ...]] = ("newstories", "topstories", "beststories")


class StoryIds(msgspec.Struct, frozen=True):
    """The ids of the lists, each once; those of the new stories; and the errors of unreadable lists."""

    ids: list[int]
    newest: list[int]
    errors: list[HoldfastError]


class HackerNewsSources:
    """Clients of Hacker News; without the setting `enabled` they are refused."""

    def __init__(self, settings: HackerNewsSettings, *, session: HttpSession, clock: Clock) -> None:
        self._settings, self._session, self._clock = settings, session, clock

    def require_enabled(self) -> None:
        """Raise ConfigError where the settings say that nothing is fetched."""
        if not self._settings.enabled:
            raise ConfigError("fetching is off; set [service.hackernews] enabled = true", "enabled")

    def api(self) -> HackerNewsApi:
        self.require_enabled()
        return HackerNewsApi(
            self._session, clock=self._clock, base_url=self._settings.api_url, call_s=self._settings.call_s
        )

    def site(self) -> HackerNewsSite:
        """Return the client of the site, for signing in."""
        self.require_enabled()
        return HackerNewsSite(
            self._session, clock=self._clock, base_url=self._settings.site_url, call_s=self._settings.call_s
        )

    async def listed(self) -> StoryIds:
        """Return the union of new, top and best stories; one unreadable list does not hide the others."""
        api = self.api()
        results = await asyncio.gather(*(api.ids(name) for name in LISTS), return_exceptions=True)
        errors = [one for one in results if isinstance(one, BaseException)]
        for error in errors:
            if not isinstance(error, HoldfastError):
                raise error
        lists = [[] if isinstance(one, BaseException) else one for one in results]
        ids = list(dict.fromkeys(one for ids in lists for one in ids))
        return StoryIds(ids, lists[0], [one for one in errors if isinstance(one, HoldfastError)])

    async def items(self, ids: Sequence[int]) -> list[tuple[int, Item | HoldfastError | None]]:
        """Fetch items, a set number at a time; a failure stands in the place of its item."""
        api, found = self.api(), dict[int, Item | HoldfastError | None]()

        async def fetch(queue: Iterable[int]) -> None:
            for one in queue:
                try:
                    found[one] = await api.item(one)
                except HoldfastError as fault:
                    found[one] = fault

        queue = iter(ids)  # shared: whoever is free takes the next
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(self._settings.fetch_concurrency, len(ids))):
                tasks.create_task(fetch(queue))
        return [(one, found[one]) for one in ids]
