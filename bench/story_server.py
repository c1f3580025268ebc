"""Two servers that answer a page of stories: `python -m bench.story_server KIND URL`.

`ours` is the service as it is served, `bare` a Litestar handler alone that returns the same bytes.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import uvicorn
import uvloop
from litestar import Litestar, Response, get

from holdfast.config import load_config
from holdfast.http.app import create_app
from holdfast.runtime import Runtime
from holdfast.server import settings
from holdfast.services.hackernews import service
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.operations import HackerNews
from holdfast.worker import freeze_gc

LIMIT: Final = 100
PATH: Final = f"/hackernews/api/v1/stories?timespan=Year&limit={LIMIT}"
_PLENTY: Final = {"caller_burst": 1_000_000, "address_burst": 1_000_000, "address_per_s": 1_000_000.0}


async def _serve(kind: str, url: str) -> None:
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    config = load_config({"store": url, "home": home, "limits": _PLENTY}, environ={})
    runtime = await Runtime.open(config, services=[service])
    operations: HackerNews = runtime.parts["hackernews"].operations
    app: Any = create_app(runtime)
    app.ready = True
    if kind == "bare":
        page = (await operations.stories(StoriesQuery(timespan="Year", limit=LIMIT))).json

        @get("/hackernews/api/v1/stories")
        async def stories() -> Response[bytes]:
            return Response(page.body, media_type="application/json")

        app = Litestar([stories], openapi_config=None)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(listener.getsockname()[1], flush=True)
    freeze_gc()
    await uvicorn.Server(settings(app)).serve(sockets=[listener])


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1], sys.argv[2]))
