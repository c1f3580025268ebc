"""What a workload is, and how two ways of doing it are measured against one another.

A workload opens two ways of doing the same work, ours and another, and gives a call for each that
does it once and says how fast that was. The runner takes turns between them, so that whatever
else the machine does meets both.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.testing import PostgresServer, fresh_database, postgres_server

TURNS = 5
SLOW_TURNS = 3  # for what takes its time however fast it is done
Measure = Callable[[], Awaitable[float]]


class Pair(NamedTuple):
    """Two implementations of the same; each call runs one and returns its figure."""

    ours: Measure
    other: Measure


class Goal(msgspec.Struct, frozen=True):
    """The expected ratio ours / other."""

    ratio: float
    at_most: bool = False

    def reached(self, ratio: float) -> bool:
        return ratio <= self.ratio if self.at_most else ratio >= self.ratio

    def __str__(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.ratio}"


class Row(msgspec.Struct, frozen=True):
    """One line of the result."""

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

    def close(self) -> None:
        self._stack.close()


Open = Callable[[Place, str], AbstractAsyncContextManager[Pair]]


class Workload(msgspec.Struct, frozen=True):
    """A workload on some engines; `open` gets a workspace and an engine's name."""

    name: str
    engines: tuple[str, ...]
    unit: str
    goal: Goal
    other_name: str
    open: Open
    quick_name: str = ""  # where quick numbers change what is measured, the row must say so
    turns: int = TURNS

    async def run(self, place: Place, engine: str, *, repeats: int) -> Row:
        async with self.open(place, engine) as pair:
            figures = [figure async for figure in _in_turn(pair, repeats, self.turns)]
        ours, other = (statistics.median(one) for one in zip(*figures, strict=True))
        ratio = round(ours / other, 3)
        return Row(
            workload=(self.quick_name if place.quick else "") or self.name, engine=engine,
            ours=round(ours, 2), other=round(other, 2), other_name=self.other_name, ratio=ratio,
            goal=str(self.goal), reached=self.goal.reached(ratio), unit=self.unit, repeats=repeats,
        )  # fmt: skip


async def _in_turn(pair: Pair, repeats: int, count: int) -> AsyncIterator[tuple[float, float]]:
    """Interleave a few short turns of each, in alternating order, so that other load affects both alike.

    A first turn of both is not counted.
    """
    await pair.ours()
    await pair.other()
    for _ in range(repeats):
        turns = [await _turn(pair, other_first=bool(n % 2)) for n in range(count)]
        yield statistics.median(t[0] for t in turns), statistics.median(t[1] for t in turns)


async def _turn(pair: Pair, *, other_first: bool) -> tuple[float, float]:
    if other_first:
        other = await pair.other()
        return await pair.ours(), other
    return await pair.ours(), await pair.other()
