"""A commit that comes alone: made in its caller's task, unless others come in the same turn of the loop."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Generator

from holdfast.store.commit import Outcome
from holdfast.store.sqlite.write_connection import WriteJob


class LoneCommit:
    """The awaitable of a commit, which is made when it is awaited.

    Awaiting lets the other tasks of this turn run first. `commit_in_place` then makes the commit and returns
    True, or has handed it to the writer thread, which fulfils the job's future. A caller that is cancelled in
    that turn has `withdraw` called, and nothing is written.
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
            outcomes: list[Outcome] = yield from job.future
            return outcomes
        if isinstance(job.result, BaseException):
            raise job.result
        made: list[Outcome] = job.result
        return made
