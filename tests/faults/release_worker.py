"""A process of one release, which commits without a pause until it is told to stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from holdfast.app import open_store
from holdfast.errors import HoldfastError, IncompatibleReleaseError
from holdfast.kit.processes import ProcessRegistry
from holdfast.store import Store, Write, create, delete, patch
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.release_models import RELEASES

REPORT_EVERY: Final = 20
Say = Callable[[str], None]


async def write(order: Order, say: Say, hear: Hear) -> None:
    """Create, change and delete crates; says `committed` now and then, in the end what failed."""
    classes = RELEASES[order["release"]]
    store = await open_store(order["url"], classes)
    registry = ProcessRegistry(store, version=order["release"])
    try:
        await registry.start()
    except IncompatibleReleaseError as refusal:
        say(f"refused: {refusal.message}")
        await store.close()
        return
    stop, failures = asyncio.Event(), list[str]()
    working = asyncio.create_task(_commit_until(stop, store, classes[0], order["release"], failures, say))
    say("started")
    while (heard := await hear()) != "stop":
        assert heard == "beat"
        await registry.beat()
    stop.set()
    await working
    for failure in failures:
        say(f"failed: {failure}")
    await registry.close()
    await store.close()
    say("over")


async def _commit_until(
    stop: asyncio.Event,
    store: Store,
    cls: type[Any],
    name: str,
    failures: list[str],
    say: Say,
) -> None:
    for number in count():
        if stop.is_set():
            return
        for act in _crate(cls, f"{name}-{os.getpid()}-{number:06}", deleted=number % 5 == 0):
            try:
                await store.commit(act)
            except HoldfastError as failure:
                failures.append(repr(failure))
        if number % REPORT_EVERY == 0:
            say("committed")


def _crate(cls: type[Any], id: str, *, deleted: bool) -> Iterator[Write]:
    yield create(cls(id=id, year=1900, labels=["made"]))
    yield patch(cls, id, changes={"labels": ["kept"]})
    if deleted:
        yield delete(cls, id)


ROLES: dict[str, Role] = {"write": write}
