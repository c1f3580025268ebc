"""What a workload is, and how ways of doing it are measured against one another.

A workload opens two ways of doing the same work, ours and another, and gives a call for each that
does it once and says how fast that was. The runner takes turns between them, so that whatever
else the machine does meets both. A third way may be the floor: the least that keeps our tables and
promises, written by hand without our code. It shows whether the goal can be reached at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

import asyncpg
import msgspec
from msgspec.structs import replace

from holdfast.testing import OwnPostgresServer, PostgresServer, fresh_database, postgres_server

TURNS = 9
LOG_SEGMENTS = 64  # of 16 MB: what PostgreSQL keeps under load by default
SLOW_TURNS = 3  # for what takes its time however fast it is done
Measure = Callable[[], Awaitable[float]]


class Ways(NamedTuple):
    """Implementations of the same; each call runs one and returns its figure."""

    ours: Measure
    other: Measure
    floor: Measure | None = None


class Goal(msgspec.Struct, frozen=True):
    """The expected ratio ours / other."""

    ratio: float
    at_most: bool = False

    def reached(self, ratio: float) -> bool:
        return ratio <= self.ratio if self.at_most else ratio >= self.ratio

    def __str__(self) -> str:
        if self == NO_GOAL:
            return ""
        return f"{'<=' if self.at_most else '>='} {self.ratio}"


NO_GOAL = Goal(0.0)


class Row(msgspec.Struct, frozen=True):
    """One line of the result; `floor` is the floor's ratio to the same other, where it was measured too.

    `compares_floor` has the rows of the floor with ours and with the other.
    """

    workload: str
    engine: str
    ours: float
    other: float
    other_name: str
    ratio: float
    goal: str
    reached: bool
    unit: str
    repeats: int
    floor: float | None = None
    compares_floor: bool = False


class Place:
    """Fresh stores for one run, on real engines; removed afterwards."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        self._numbers = count()
        self._server: PostgresServer | None = None

    def scale(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def url(self, engine: str) -> str:
        """An empty store: `sqlite full`, `sqlite normal` or `postgres`."""
        if engine.startswith("sqlite "):
            path = self._folder / f"{next(self._numbers)}.db"
            return f"sqlite:///{path}?synchronous={engine.split()[1]}"
        if self._server is None:
            self._server = self._stack.enter_context(postgres_server())
        return self._stack.enter_context(fresh_database(self._server))

    def folder(self) -> Path:
        """An empty folder, such as a process's home."""
        made = self._folder / f"home-{next(self._numbers)}"
        made.mkdir()
        return made

    async def flush(self) -> None:
        """Have all that was written before reach the disk, so that no sync of the next row waits for it."""
        if self._server is not None:
            link = await asyncpg.connect(self._server.url)
            if isinstance(self._server, OwnPostgresServer):
                await _fill_log(link)
            await link.execute("CHECKPOINT")
            await link.close()
        await asyncio.to_thread(os.sync)

    def close(self) -> None:
        self._stack.close()


async def _fill_log(link: asyncpg.Connection) -> None:
    """Have a new server keep as many segments of its log for reuse as one that has been busy for a while.

    Each new one takes 10 ms in the middle of a commit, the more often the more a way of doing it writes.
    """
    await link.execute("ALTER SYSTEM SET min_wal_size = '1GB'")
    await link.execute("SELECT pg_reload_conf()")
    for _ in range(LOG_SEGMENTS - await link.fetchval("SELECT count(*) FROM pg_ls_waldir()")):
        await link.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
        await link.execute("SELECT pg_switch_wal()")


Open = Callable[[Place, str], AbstractAsyncContextManager[Ways]]


class Workload(msgspec.Struct, frozen=True):
    """A workload on some engines; `open` gets a workspace and an engine's name.

    Where `open` gives a floor, its comparison with the other way is a row of its own; so is ours with the
    floor, unless `floor_goal` is None.
    """

    name: str
    engines: tuple[str, ...]
    unit: str
    goal: Goal
    other_name: str
    open: Open
    quick_name: str = ""  # where quick numbers change what is measured, the row must say so
    turns: int = TURNS
    floor_name: str = ""
    floor_goal: Goal | None = NO_GOAL

    async def run(self, place: Place, engine: str, *, repeats: int) -> list[Row]:
        async with self.open(place, engine) as ways:
            given = [way for way in ways if way is not None]
            await place.flush()
            figures = [figure async for figure in _in_turn(given, repeats, self.turns)]
        ours, other, *floor = (statistics.median(one) for one in zip(*figures, strict=True))
        blank = Row(
            workload=(self.quick_name if place.quick else "") or self.name, engine=engine, ours=0.0,
            other=0.0, other_name="", ratio=0.0, goal="", reached=True, unit=self.unit, repeats=repeats,
        )  # fmt: skip
        against_other = _fill(blank, ours, other, other_name=self.other_name, goal=self.goal)
        return [row for one in floor for row in self._floor_rows(against_other, one)] or [against_other]

    def _floor_rows(self, against_other: Row, floor: float) -> list[Row]:
        ours, other = against_other.ours, against_other.other
        alone = _fill(against_other, floor, other, other_name=self.other_name, goal=self.goal)
        alone = replace(alone, workload=f"floor, {self.floor_name}: {alone.workload}")
        rows = [alone]
        if self.floor_goal is not None:
            rows.insert(
                0, _fill(against_other, ours, floor, other_name=self.floor_name, goal=self.floor_goal)
            )
        return [replace(against_other, floor=alone.ratio), *(replace(r, compares_floor=True) for r in rows)]


def _fill(row: Row, ours: float, other: float, *, other_name: str, goal: Goal) -> Row:
    ratio = round(ours / other, 3)
    return replace(
        row, ours=round(ours, 2), other=round(other, 2), other_name=other_name, ratio=ratio, goal=str(goal),
        reached=goal.reached(ratio),
    )  # fmt: skip


async def _in_turn(ways: Sequence[Measure], repeats: int, count: int) -> AsyncIterator[list[float]]:
    """Interleave a few short turns of each, each time another first, so that other load affects all alike.

    A first turn of each is not counted.
    """
    for way in ways:
        await way()
    for _ in range(repeats):
        turns = [await _turn(ways, first=n % len(ways)) for n in range(count)]
        yield [statistics.median(column) for column in zip(*turns, strict=True)]


async def _turn(ways: Sequence[Measure], *, first: int) -> list[float]:
    order = [*range(first, len(ways)), *range(first)]
    figures = {n: await ways[n]() for n in order}
    return [figures[n] for n in range(len(ways))]


T = TypeVar("T")


def beside(*ways: Callable[[str], AsyncIterator[T]], figure: Callable[[T, Place], Awaitable[float]]) -> Open:
    """Open the ways on stores of their own, ours first; `figure` measures one turn of one of them."""

    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Ways]:
        async with AsyncExitStack() as stack:
            made = [
                await stack.enter_async_context(asynccontextmanager(way)(place.url(engine))) for way in ways
            ]
            yield Ways(*(partial(figure, one, place) for one in made))

    return opened
