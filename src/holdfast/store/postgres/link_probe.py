"""Finds half-open links: a statement without a response that the server knows nothing of.

Packets that a firewall or a failed network drops leave a link that is open on one side. A statement on it
would wait for the whole time limit, with every later commit behind it. So after `PROBE_S` the server is asked
over another link what the session does; where it does nothing, or can't be asked, the link is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from holdfast.store.postgres.pool import PgConnection

PROBE_S: Final = 2.0
Opener: TypeAlias = "Callable[[], Awaitable[PgConnection]]"


@contextlib.contextmanager
def probed(connection: PgConnection, opener: Opener) -> Iterator[None]:
    """Terminate the connection, so that the block fails, once its link turns out to be dead."""
    loop, probes = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    timer = loop.call_later(PROBE_S, lambda: probes.append(loop.create_task(_watch(connection, opener))))
    try:
        yield
    finally:
        timer.cancel()
        for probe in probes:
            probe.cancel()


async def _watch(connection: PgConnection, opener: Opener) -> None:
    while not connection.is_closed():
        if not await _is_busy(connection.get_server_pid(), opener):
            connection.terminate()
        await asyncio.sleep(PROBE_S)


async def _is_busy(session: int, opener: Opener) -> bool:
    """Whether the server is at work for a session; False where it can't be asked either."""
    try:
        async with asyncio.timeout(PROBE_S):
            probe = await opener()
            try:
                text = "SELECT true FROM pg_stat_activity WHERE pid = $1 AND state NOT LIKE 'idle%'"
                return bool(await probe.fetchval(text, session))
            finally:
                await probe.close()
    except Exception:
        return False
