"""The same random history on every engine, result by result.

`HOLDFAST_HISTORY_OPERATIONS` says how many operations are run at least: 2,000; the long form is 10,000.
`HOLDFAST_HISTORY_SEED` repeats a run; with `CI` set the seed is fixed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

import pytest
import uvloop
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from holdfast.errors import HoldfastError
from holdfast.store import Store, firestore, postgres, sqlite
from holdfast.store.contract import EngineHarness
from holdfast.store.contract.models import NOON
from holdfast.testing import ManualClock
from tests.contract import reference
from tests.contract.history import reads, writes
from tests.contract.history.models import CLASSES
from tests.contract.history.session import Refusal, Session, refusal

OPERATIONS = int(os.environ.get("HOLDFAST_HISTORY_OPERATIONS", "2000"))
SEED = int(os.environ.get("HOLDFAST_HISTORY_SEED") or (1 if os.environ.get("CI") else time.time_ns() % 10**9))
SHARDS = 4  # so that several workers can share the run
STEPS = 40
OPERATION_KINDS = 10  # of operations, all of which must occur


class Operation(Protocol):
    async def run(self, session: Session) -> Any: ...


class Engines:
    """All engines on one clock, and a count of the operations."""

    def __init__(self, harnesses: dict[str, EngineHarness]) -> None:
        self.clock = ManualClock(NOON)
        self.ran: Counter[str] = Counter()
        self.refused = self.shown = 0
        self._names = map("h{:05}".format, itertools.count())
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._open = contextlib.AsyncExitStack()
        self.stores = {name: self._runner.run(self._enter(harness)) for name, harness in harnesses.items()}

    async def _enter(self, harness: EngineHarness) -> Store:
        return await self._open.enter_async_context(harness.open(self.clock, classes=CLASSES))

    def sessions(self) -> dict[str, Session]:
        history = next(self._names)
        plain = self.stores["reference"].engine
        assert isinstance(plain, reference.Reference)
        return {name: Session(store, history, plain.peek) for name, store in self.stores.items()}

    def act(self, operation: Operation, sessions: dict[str, Session]) -> dict[str, Any]:
        answers = self._runner.run(self._on_all(operation, sessions))
        self.ran[type(operation).__name__] += 1
        self.refused += isinstance(answers["reference"], Refusal)
        self.shown += sessions["reference"].shown_count
        sessions["reference"].shown_count = 0
        return answers

    async def _on_all(self, operation: Operation, sessions: dict[str, Session]) -> dict[str, Any]:
        answers = await asyncio.gather(*(_answer(operation, session) for session in sessions.values()))
        return dict(zip(sessions, answers, strict=True))

    def report(self) -> str:
        kinds = ", ".join(f"{count:,} {name}" for name, count in self.ran.most_common())
        told = f"{self.refused:,} refused alike, {self.shown:,} documents shown alike"
        return f"{self.ran.total():,} operations ({kinds}); {told}"

    def close(self) -> None:
        self._runner.run(self._open.aclose())
        self._runner.close()


async def _answer(operation: Operation, session: Session) -> Any:
    try:
        return await operation.run(session)
    except HoldfastError as fault:
        return refusal(fault)


def _machine(engines: Engines) -> type[RuleBasedStateMachine]:
    class History(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.sessions = engines.sessions()
            engines.clock.set(NOON)

        def act(self, operation: Operation) -> None:
            answers = engines.act(operation, self.sessions)
            plain = answers["reference"]
            assert answers == dict.fromkeys(answers, plain), operation

        @initialize(operation=writes.first_documents())
        def begin(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=writes.committing)
        def commit(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=writes.committing)
        def commit_more(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=writes.settling)
        def settle(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=writes.transacting)
        def transact(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=reads.reading)
        def read(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=reads.asking)
        def ask(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=reads.asking)
        def ask_more(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=reads.going_on)
        def go_on(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=reads.totalling)
        def total(self, operation: Operation) -> None:
            self.act(operation)

        @rule(operation=reads.claiming | reads.expiring)
        def take(self, operation: Operation) -> None:
            self.act(operation)

        @rule(passing=reads.waiting)
        def wait(self, passing: timedelta) -> None:
            engines.clock.tick(passing.total_seconds())

    return History


@pytest.fixture
def engines(sqlite_url: str, postgres_url: str, firestore_url: str) -> Iterator[Engines]:
    harnesses = {
        "reference": EngineHarness(reference.connect, f"history of {sqlite_url}"),
        "sqlite": EngineHarness(sqlite.connect, sqlite_url),
        "postgres": EngineHarness(postgres.connect, postgres_url),
        "firestore": EngineHarness(firestore.connect, firestore_url),
    }
    with contextlib.closing(Engines(harnesses)) as opened:
        yield opened


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_engine_gives_the_same_answers(
    engines: Engines, shard: int, record_property: Callable[[str, object], None]
) -> None:
    wanted = math.ceil(OPERATIONS / SHARDS)
    # Without a seed of its own every shard would run the same history where runs must be repeatable.
    first = SEED + shard * 1_000
    for number in itertools.count(first):
        examples = math.ceil((wanted - engines.ran.total()) / STEPS)
        run_state_machine_as_test(seed(number)(_machine(engines)), settings=_settings(examples))
        if engines.ran.total() >= wanted:
            break
    record_property("said", f"history {shard + 1}/{SHARDS} (seed {first}): {engines.report()}")
    assert engines.ran.total() >= wanted
    assert len(engines.ran) == OPERATION_KINDS or wanted < OPERATION_KINDS * 100


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples, stateful_step_count=STEPS, deadline=None, database=None, print_blob=True,
        suppress_health_check=list(HealthCheck), derandomize=False,
    )  # fmt: skip
