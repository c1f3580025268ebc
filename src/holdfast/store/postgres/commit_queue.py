"""The commits that wait for the writers of one engine."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.errors import StoreUnavailableError
from holdfast.store.commit import Commit, Outcome

if TYPE_CHECKING:
    from holdfast.store.postgres.writer import FailedAttempt, PostgresWriter

WRITES_PER_BATCH: Final = 500
LARGE_MIN: Final = 32  # from so many writes on a request is worth a statement of its own


class CommitRequest:
    """Commits of one caller, and the future of their outcomes; those that are `large` any writer takes."""

    __slots__ = ("commits", "failed", "future", "large", "size")

    def __init__(
        self,
        commits: Sequence[Commit],
        size: int,
        *,
        future: asyncio.Future[list[Outcome]],
        failed: FailedAttempt | None = None,
        large: bool = False,
    ) -> None:
        self.commits, self.size, self.future, self.failed = commits, size, future, failed
        self.large = large


class IdleWriter(NamedTuple):
    """A writer, and the future that wakes it."""

    writer: PostgresWriter
    filled: asyncio.Future[None]


class CommitQueue:
    """Gives the writer all that waits at a moment, up to a batch.

    Further writers take large requests that come while it is busy: the server works at one while the loop
    makes the next, and needs nothing from the loop in between. A caller whose commit comes alone may borrow
    the idle writer: no task has to be woken for it. What others commit meanwhile waits for it as usual.
    """

    def __init__(self) -> None:
        self._waiting: deque[CommitRequest] = deque()
        self._failed: deque[CommitRequest] = deque()  # each is a batch by itself
        self._idle: deque[IdleWriter] = deque()
        self._idle_for_large: deque[IdleWriter] = deque()
        self._large = 0  # requests that wait
        self._last_taken = 0  # commits
        self._last_grouped = False  # whether one request had several
        self.closed = False

    def put(
        self, commits: Sequence[Commit], size: int, *, in_order: bool = False
    ) -> asyncio.Future[list[Outcome]]:
        """Return the future of the outcomes; `size` is the number of writes.

        Requests that have to be made `in_order` are all taken by the first writer.
        """
        if self.closed:
            raise StoreUnavailableError("the store is closed")
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        large = size >= LARGE_MIN and not in_order
        self._waiting.append(CommitRequest(commits, size, future=future, large=large))
        if large:
            self._large += 1
            if not self._idle and self._idle_for_large:
                self._idle_for_large.popleft().filled.set_result(None)
        self._wake()
        return future

    def put_failed(self, commits: Sequence[Commit], failed: FailedAttempt) -> asyncio.Future[list[Outcome]]:
        """Return the future of the outcomes of commits that were attempted as a batch."""
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._failed.append(CommitRequest(commits, 0, future=future, failed=failed))
        self._wake()
        return future

    @property
    def is_calm(self) -> bool:
        """Whether a writer has nothing to do, and commits have come one by one: others may share a batch."""
        busy = self._waiting or self._failed or self.closed or not self._idle
        return not busy and self._last_taken <= 1

    def borrow(self) -> IdleWriter:
        """Return a writer that has nothing to do, to be given back after one commit."""
        return self._idle.popleft()

    def give_back(self, idle: IdleWriter) -> None:
        self._idle.appendleft(idle)
        if self._waiting or self._failed or self.closed:
            self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle.popleft().filled.set_result(None)

    async def take(self, writer: PostgresWriter) -> list[CommitRequest]:
        """Return all that waits, up to a batch; empty once closed and drained.

        A large request waits for no others.
        """
        if self._last_grouped and not self._large:
            await asyncio.sleep(0)  # those who group commits need one more iteration to do so again
        while True:
            if self._last_taken > 1 and not self._large:
                # Lets callers whose commits have just returned commit again before the batch is closed.
                await asyncio.sleep(0)
            if taken := self._pop():
                self._last_taken = sum([len(request.commits) for request in taken])
                self._last_grouped = self._last_taken > len(taken)
                return taken
            if self.closed:
                return []
            filled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(IdleWriter(writer, filled))
            await filled

    async def take_large(self, writer: PostgresWriter) -> list[CommitRequest]:
        """Return the next large request; empty once closed and drained of them."""
        while True:
            for position, request in enumerate(self._waiting):
                if request.large:
                    del self._waiting[position]
                    self._large -= 1
                    return [request]
            if self.closed:
                return []
            filled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_for_large.append(IdleWriter(writer, filled))
            await filled

    def _pop(self) -> list[CommitRequest]:
        if self._failed:
            return [self._failed.popleft()]
        taken: list[CommitRequest] = []
        size = 0
        while self._waiting and (not taken or size + self._waiting[0].size <= WRITES_PER_BATCH):
            taken.append(self._waiting.popleft())
            size += taken[-1].size
            self._large -= taken[-1].large
        return taken

    def close(self) -> None:
        self.closed = True
        while self._idle:
            self._wake()
        while self._idle_for_large:
            self._idle_for_large.popleft().filled.set_result(None)
