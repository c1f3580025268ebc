"""An application over a real socket on loopback: there when the block begins, gone when it ends.

Left to itself the server looks ten times a second whether it should end and then waits a tenth more, which is
most of the time of a short test.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import uvicorn


@contextlib.asynccontextmanager
async def served(settings: uvicorn.Config) -> AsyncIterator[str]:
    """The address; whoever still waits for an answer at the end gets it, within the settings' grace.

    Example: `async with served(uvicorn.Config(app)) as address: ...`
    """
    settings.load()
    server = uvicorn.Server(settings)
    server.lifespan = settings.lifespan_class(settings)
    with _listening() as listener:
        await server.startup(sockets=[listener])
        # The first look at the clock, for the headers of every answer.
        await server.on_tick(0)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await _end(server)


def _listening() -> socket.socket:
    """A socket that says it is TCP: only then does asyncio send small answers at once, as uvloop does."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


async def _end(server: uvicorn.Server) -> None:
    for one in server.servers:
        one.close()
    state = server.server_state
    for connection in list(state.connections):
        connection.shutdown()
    try:
        async with asyncio.timeout(server.config.timeout_graceful_shutdown):
            while state.connections or state.tasks:  # noqa: ASYNC110 - the server gives no signal
                await asyncio.sleep(0.001)
    except TimeoutError:
        for task in state.tasks:
            task.cancel()
    await server.lifespan.shutdown()
