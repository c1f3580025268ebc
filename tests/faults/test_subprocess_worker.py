"""A process beside this one: does what it is given, ends with who started it, is not waited for in vain."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.service import WorkerLostError
from holdfast.subprocess_worker import StoreSubprocessPool, StoreSubprocessWorker
from tests.faults.controlled_process import run_processes
from tests.faults.subprocess_tasks import Note
from tests.kit.eventually import until

PARTS = "tests.faults.subprocess_tasks"


@contextlib.asynccontextmanager
async def beside(url: str, part: str) -> AsyncIterator[StoreSubprocessWorker]:
    made = StoreSubprocessPool(url)
    async with made(f"{PARTS}:{part}") as companion:
        yield companion
    await made.close()


async def test_it_reads_the_same_store_and_gives_what_it_makes_of_it(sqlite_url: str) -> None:
    await Note.keep(sqlite_url, "one", "two")
    async with beside(sqlite_url, "READ") as companion:
        given = [message async for message in companion.stream(b"all ")]
        assert given == [b"all one", b"all two"]
        assert companion.ready
        # It can be asked again.
        assert [message async for message in companion.stream(b"")] == [b"one", b"two"]


async def test_what_the_part_prints_does_not_come_between_what_it_gives(sqlite_url: str) -> None:
    async with beside(sqlite_url, "TALK") as companion:
        assert [message async for message in companion.stream(b"x")] == [b"x" * 300_000] * 3


@pytest.mark.parametrize(
    ("part", "why"),
    [("FAIL", "ValueError: not today"), ("NOTHING", "NOTHING"), ("SPLIT", "ended in the middle")],
)
async def test_who_asked_is_told_why_it_was_lost(sqlite_url: str, part: str, why: str) -> None:
    async with beside(sqlite_url, part) as companion:
        with pytest.raises(WorkerLostError, match=why):
            async for _ in companion.stream(b""):
                pass


async def test_one_that_stands_still_is_not_waited_for_in_vain(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beside(sqlite_url, "READ") as companion:
        await companion.begun()
        monkeypatch.setattr("holdfast.subprocess_worker.SILENCE_S_MAX", 0.2)
        assert companion.pid is not None
        os.kill(companion.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLostError, match="nothing was heard"):
            await anext(companion.stream(b""))
    assert not _alive(companion.pid)


async def test_one_that_is_killed_before_it_is_ready_never_is(sqlite_url: str) -> None:
    async with beside(sqlite_url, "READ") as companion:
        assert companion.pid is not None
        os.kill(companion.pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError):
            await anext(companion.stream(b""))
        assert not companion.ready


async def test_one_that_can_not_be_started_is_never_ready(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    async with beside(sqlite_url, "READ") as companion:
        with pytest.raises(WorkerLostError, match="could not be started"):
            await anext(companion.stream(b""))
        assert not companion.ready


async def test_it_is_gone_when_the_block_ends_whatever_it_was_doing(sqlite_url: str) -> None:
    async with beside(sqlite_url, "WAIT") as companion:
        stream = companion.stream(b"")
        assert await anext(stream) == b"waiting"
        pid = companion.pid
        await stream.aclose()
    assert not Path(f"/proc/{pid}").exists()


async def test_starting_one_runs_no_fork_handlers_which_are_not_safe_beside_other_threads(
    sqlite_url: str,
) -> None:
    forks = list[str]()
    # Handlers can't be taken back; this one is harmless afterwards.
    os.register_at_fork(before=lambda: forks.append("before"))
    async with beside(sqlite_url, "READ") as companion:
        await companion.begun()
    assert forks == []


async def test_the_next_who_asks_gets_the_same_one_and_who_asks_meanwhile_another(sqlite_url: str) -> None:
    await Note.keep(sqlite_url, "one")
    made, pids = StoreSubprocessPool(sqlite_url), list[int | None]()
    for _ in range(2):
        async with made(f"{PARTS}:READ") as companion:
            assert [message async for message in companion.stream(b"")] == [b"one"]
            pids.append(companion.pid)
    assert pids[0] == pids[1]
    async with made(f"{PARTS}:READ") as first, made(f"{PARTS}:READ") as second:
        await second.begun()
        assert pids[0] == first.pid != second.pid
    await made.close()
    assert not any(_alive(one.pid or 0) for one in (first, second))


async def test_one_that_was_left_in_the_middle_is_not_given_to_the_next(sqlite_url: str) -> None:
    made = StoreSubprocessPool(sqlite_url)
    async with made(f"{PARTS}:GO_ON") as companion, contextlib.aclosing(companion.stream(b"")) as stream:
        await anext(stream)
    assert not _alive(companion.pid or 0)
    await made.close()


async def test_it_ends_when_nobody_asks_for_it_any_more(sqlite_url: str) -> None:
    made = StoreSubprocessPool(sqlite_url, rest_s=0.05)
    async with made(f"{PARTS}:READ") as companion:
        await companion.begun()
    assert _alive(companion.pid or 0)
    await until(lambda: not _alive(companion.pid or 0), within_s=30)
    async with made(f"{PARTS}:READ") as another:
        await another.begun()
        assert another.pid != companion.pid
    await made.close()


async def test_it_ends_when_who_started_it_is_killed(sqlite_url: str) -> None:
    async with run_processes(PARTS, "start", {"url": sqlite_url}) as (parent,):
        pid = int((await parent.hear()).removeprefix("companion "))
        assert Path(f"/proc/{pid}").exists()
        await parent.kill()
    await until(lambda: not _alive(pid), within_s=30)


async def test_the_address_of_the_store_is_not_in_the_list_of_processes(sqlite_url: str) -> None:
    async with beside(sqlite_url, "READ") as companion:
        await companion.begun()
        said = Path(f"/proc/{companion.pid}/cmdline").read_text()
        assert "holdfast.subprocess_worker" in said
        assert sqlite_url.rpartition("/")[2] not in said


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
