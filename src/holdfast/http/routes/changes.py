"""The stream of what has changed, as server-sent events: topics, never documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from litestar.datastructures import State
from litestar.response import Stream

from holdfast.http.change_stream import ChangeStream
from holdfast.routing import By, read_route

_RETRY: Final = b"retry: 2000\n\n"


async def _events(told: AsyncIterator[frozenset[str]]) -> AsyncIterator[bytes]:
    yield _RETRY
    async for topics in told:
        said = msgspec.json.encode(sorted(topics))
        yield b"event: changed\ndata: " + said + b"\n\n" if topics else b": alive\n\n"


@read_route("/changes", "viewer", area="changes", media_type="text/event-stream", time_limit_s=None)
async def changes(state: State, by: By) -> Stream:
    """Which topics changed, as `event: changed` with a JSON list; `*` is everything.

    Whoever sees one tenant alone is sent `*` every few seconds."""
    told: ChangeStream = state.surface.changes
    return Stream(_events(told.stream(by.caller)), media_type="text/event-stream")


ROUTES: Final = (changes,)
