"""Channels by the key that signed their tokens: without it, their notifications are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from holdfast.kit.channels import decision
from holdfast.kit.channels.models import Watch
from holdfast.kit.channels.watch_registry import apply_change
from holdfast.store import Query, Store

PAGE: Final = 500
_WITH_CHANNEL: Final = ("watched", "attention")


async def channels_of_key(store: Store, key_id: str) -> tuple[int, datetime | None]:
    """Count the open channels whose token this key has signed, of all tenants; when the last one ends."""
    ends = [
        watch.current.ends_at
        for status in _WITH_CHANNEL
        async for watch in _scan(store, _of_status(status).where("key_id", "==", key_id))
        if watch.current is not None and watch.current.ends_at > store.clock.now()
    ]
    return len(ends), max(ends, default=None)


async def channels_of_unknown_keys(store: Store, key_ids: Collection[str]) -> list[Watch]:
    """Find open channels whose token was signed by none of these keys; the first few."""
    found: list[Watch] = []
    for query in _of_other_keys(key_ids):
        found += (await store.privileged().query(query.limit(PAGE))).docs
    return [one for one in found if one.current is not None and one.current.ends_at > store.clock.now()]


def describe_unknown_keys(watches: Sequence[Watch]) -> str:
    """Say that notifications of these channels are refused, and why."""
    ids = ", ".join(sorted({watch.key_id for watch in watches}))
    count = f"{len(watches)} push channel{'s' if len(watches) > 1 else ''}"
    return f"notifications of {count} are refused: the key that signed their tokens is not set ({ids})"


async def renew_channels(store: Store, key_id: str) -> int:
    """Ask for the renewal of all channels whose token another key has signed; return how many."""
    asked, privileged = 0, store.privileged()
    renew = partial(decision.renew_if_old_key, key_id=key_id)
    for query in _of_other_keys([key_id]):
        async for watch in _scan(store, query):
            act = partial(apply_change, id=watch.id, change=renew, now=store.clock.now())
            asked += await privileged.transact(act)
    return asked


def _of_status(status: str) -> Query[Watch]:
    return Query(Watch).where("status", "==", status)


def _of_other_keys(key_ids: Collection[str]) -> Iterator[Query[Watch]]:
    """Queries for the ranges between the keys; a channel whose key is not known is in none of them."""
    known = sorted(key_ids)
    for status in _WITH_CHANNEL:
        for low, high in zip(["", *known], [*known, None], strict=True):
            query = _of_status(status).where("key_id", ">", low)
            yield (query if high is None else query.where("key_id", "<", high)).order_by("key_id")


async def _scan(store: Store, query: Query[Watch]) -> AsyncIterator[Watch]:
    async for stored in store.privileged().scan(query.limit(PAGE)):
        yield stored.doc
