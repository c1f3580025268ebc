"""How long a request may take: set when it comes in, moved by the route that answers it."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

_KEY: Final = "time_limit"


def note(scope: Any, limit: asyncio.Timeout) -> None:
    """Let what answers the request find its time limit."""
    scope["state"][_KEY] = limit


def allow_time(scope: Any, seconds: float | None) -> None:
    """Give the request so much time from now on; None for as long as it takes."""
    limit: asyncio.Timeout | None = scope["state"].get(_KEY)
    if limit is not None:
        limit.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)


class Cancellable(Protocol):
    """A future, or another thing that ends early."""

    def cancel(self) -> object: ...


class DeadlineTimer:
    """Gives many tasks or futures the same time each, with one timer for all instead of one for each.

    Example: `with DeadlineTimer(30).limit() as limit: ...` raises TimeoutError, and `limit.expired` is True.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadlines: dict[Cancellable, float] = {}  # in the order they expire
        self._timer: asyncio.TimerHandle | None = None

    def limit(self) -> Deadline:
        """Limit the current task's time from now on."""
        task = asyncio.current_task()
        assert task is not None
        return Deadline(self, task)

    def add(self, limited: Cancellable, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel it when its time is up, unless it is removed before."""
        self._deadlines[limited] = at_s = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(at_s, self._expire, loop)

    def remove(self, limited: Cancellable) -> bool:
        """Whether it had not expired yet."""
        return self._deadlines.pop(limited, None) is not None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s, self._timer = loop.time(), None
        for limited, at_s in list(self._deadlines.items()):
            if at_s > now_s:
                self._timer = loop.call_at(at_s, self._expire, loop)
                return
            del self._deadlines[limited]
            limited.cancel()


class Deadline:
    """The end of one task's time."""

    __slots__ = ("_cancelling", "_timer", "expired", "task")

    def __init__(self, timer: DeadlineTimer, task: asyncio.Task[Any]) -> None:
        self._timer, self.task, self.expired = timer, task, False

    def __enter__(self) -> Deadline:
        self._cancelling = self.task.cancelling()
        self._timer.add(self, self.task.get_loop())
        return self

    def cancel(self) -> None:
        self.task.cancel()

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: object) -> None:
        self.expired = not self._timer.remove(self)
        # Cancelled by somebody else as well, it stays cancelled.
        if self.expired and self.task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from fault
