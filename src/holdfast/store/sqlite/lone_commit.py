"""A commit that comes alone: made in its caller's task, unless others come in the same turn of the loop."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Generator

from holdfast.store.commit import Outcome
from holdfast.store.port import UnstartedCommit
from holdfast.store.sqlite.write_connection import WriteJob


class LoneCommit(UnstartedCommit):
    """The awaitable of a commit, which is made when it is awaited.

    Awaiting lets the other tasks of this turn run first. `commit_in_place` then makes the commit and returns
    True, or has handed it to the writer thread, which fulfils the job's future. A caller that is cancelled in
    that turn has `withdraw` called, and nothing is written. Started, it is made by a callback.
    """

    __slots__ = ("_commit_in_place", "_job", "_withdraw")

    def __init__(
        self,
        job: WriteJob,
        *,
        commit_in_place: Callable[[WriteJob], bool],
        withdraw: Callable[[WriteJob], None],
    ) -> None:
        self._job, self._commit_in_place, self._withdraw = job, commit_in_place, withdraw

    def __await__(self) -> Generator[Future[list[Outcome]] | None, None, list[Outcome]]:
        job = self._job
        try:
            yield None
        except BaseException:
            self._withdraw(job)
            raise
        if not self._commit_in_place(job):
            assert job.future is not None
            outcomes: list[Outcome] = yield from job.future
            return outcomes
        if isinstance(job.result, BaseException):
            raise job.result
        made: list[Outcome] = job.result
        return made

    def start(self) -> Future[list[Outcome]]:
        loop = asyncio.get_running_loop()
        future: Future[list[Outcome]] = loop.create_future()
        self._job.future = future
        loop.call_soon(self._commit)
        return future

    def _commit(self) -> None:
        if self._commit_in_place(self._job):
            self._job.fulfil()
