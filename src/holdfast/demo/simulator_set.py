"""All simulators of one demo, on loopback, in this process, and the second worker."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from holdfast.clock import Clock
from holdfast.demo.second_worker import SecondWorker
from holdfast.simulators.discovery import Simulator, find_simulators

S = TypeVar("S")


class SimulatorSet:
    """An async context manager that starts and stops all simulators.

    Example:
        async with SimulatorSet(clock=SystemClock(), public_url="http://127.0.0.1:8000") as simulators:
            simulators.get(RmsSimulator).run(Behave(failure_rate=1.0))
    """

    def __init__(self, *, clock: Clock, public_url: str) -> None:
        self.clock, self.public_url = clock, public_url
        self.folder = Path()
        self.simulators: dict[str, Simulator] = {}
        self.second = SecondWorker()
        self._stack = contextlib.AsyncExitStack()

    def get(self, kind: type[S]) -> S:
        return next(one for one in self.simulators.values() if isinstance(one, kind))

    async def __aenter__(self) -> Self:
        async with self._stack as stack:
            # For what a service reads from files, such as simulated credentials; removed with the demo.
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
            for name, factory in find_simulators().items():
                self.simulators[name] = await stack.enter_async_context(factory(self.clock, 0))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.second.close()
        await self._stack.aclose()
