"""Finds half-open links: a statement without a response that the server knows nothing of.

Packets that a firewall or a failed network drops leave a link that is open on one side. A statement on it
would wait for the whole time limit, with every later commit behind it. So after `PROBE_S` the server is asked
over another link what the session does; where it does nothing, or can't be asked, the link is closed.
The same timer ends what takes longer than the time limit: the driver's own would be one for each statement.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import asyncpg

if TYPE_CHECKING:
    from holdfast.store.postgres.pool import PgConnection

PROBE_S: Final = 2.0
Opener: TypeAlias = "Callable[[], Awaitable[PgConnection]]"


class LinkProbe:
    """Watches the statements of a pool; one timer for all, because one for each costs as much as a read."""

    def __init__(self, opener: Opener, *, limit_s: float) -> None:
        self._opener, self._limit_s = opener, limit_s
        self.statements: dict[PgConnection, ProbedStatement] = {}
        self.timer: asyncio.TimerHandle | None = None

    def statement(self, connection: PgConnection) -> ProbedStatement:
        """Return a block that fails once the link turns out to be dead, or at the time limit."""
        return ProbedStatement(self, connection)

    def arm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer, which runs while statements do."""
        self.timer = loop.call_later(min(PROBE_S, self._limit_s), self._look)

    def _look(self) -> None:
        """Probe the links of late statements, end those at the limit, and look again when another can be."""
        loop, self.timer = asyncio.get_running_loop(), None
        now_s, next_s = loop.time(), math.inf
        for one in self.statements.values():
            if one.since_s + self._limit_s <= now_s:
                one.expire()
                continue
            if one.probe is None and one.since_s + PROBE_S <= now_s:
                one.probe = loop.create_task(_watch(one.connection, self._opener))
            wait_s = self._limit_s if one.probe is not None else min(PROBE_S, self._limit_s)
            next_s = min(next_s, one.since_s + wait_s)
        if next_s < math.inf:
            self.timer = loop.call_at(next_s, self._look)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class ProbedStatement:
    """A statement at work, and its probe once it is late."""

    __slots__ = ("_expired", "_link_probe", "_task", "connection", "probe", "since_s")

    def __init__(self, link_probe: LinkProbe, connection: PgConnection) -> None:
        self._link_probe, self.connection = link_probe, connection
        self.probe: asyncio.Task[None] | None = None
        self.since_s, self._expired = 0.0, False

    def __enter__(self) -> None:
        probe, loop = self._link_probe, asyncio.get_running_loop()
        if probe.timer is None:
            probe.arm(loop)
        self._task, self.since_s = asyncio.current_task(loop), loop.time()
        probe.statements[self.connection] = self

    def expire(self) -> None:
        """Cancel the statement, as `asyncio.timeout` would."""
        if not self._expired and self._task is not None:
            self._expired = True
            self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, fault: object, trace: object) -> None:
        del self._link_probe.statements[self.connection]
        if self.probe is not None:
            self.probe.cancel()
        if self._expired and self._task is not None:
            others = self._task.uncancel()
            if others == 0 and kind is asyncio.CancelledError:
                raise TimeoutError("the statement took longer than the time limit")


async def _watch(connection: PgConnection, opener: Opener) -> None:
    while not connection.is_closed():
        if not await _is_busy(connection.get_server_pid(), opener):
            connection.terminate()
        await asyncio.sleep(PROBE_S)


async def _is_busy(session: int, opener: Opener) -> bool:
    """Whether the server is, or may be, at work for a session; False where it can't be reached either."""
    try:
        async with asyncio.timeout(PROBE_S):
            probe = await opener()
            try:
                text = "SELECT true FROM pg_stat_activity WHERE pid = $1 AND state NOT LIKE 'idle%'"
                return bool(await probe.fetchval(text, session))
            finally:
                await probe.close()
    except asyncpg.TooManyConnectionsError:
        # The server responds and has no room for the question: the statement's own time limit decides.
        return True
    except Exception:
        return False
