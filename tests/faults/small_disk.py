"""A store on a disk that is filled up: `python -m tests.faults.small_disk FOLDER` prints its outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from holdfast.app import open_store
from holdfast.errors import HoldfastError
from holdfast.model import Document, ProvidedId, document
from holdfast.runtime.health import HealthMonitor
from holdfast.store import Store, create, delete

DOCUMENTS = 2_000


@document("fillings/{id}", id=ProvidedId())
class Filling(Document):
    id: str
    text: str = ""


def _fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "rest").open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4_096)


async def _outcome(store: Store, *ids: str) -> str:
    try:
        await store.settle([delete(Filling, id)] for id in ids)
    except HoldfastError as fault:
        return fault.code
    return "done"


async def main(folder: Path) -> None:
    store = await open_store(f"sqlite:///{folder}/a.db", [Filling])
    await store.migrate()
    await store.settle([create(Filling(id=f"{n:05}", text="x" * 2_000))] for n in range(DOCUMENTS))
    told: dict[str, str] = {}
    # Deleted first, so that there are pages to give back when the disk is full.
    await _outcome(store, *(f"{n:05}" for n in range(400)))
    _fill(folder)
    told["deleted_while_full"] = await _outcome(store, *(f"{n:05}" for n in range(400, 1_400)))
    try:
        while True:
            await store.settle([create(Filling(id=f"more-{n}", text="x" * 2_000))] for n in range(DOCUMENTS))
            await store.settle([delete(Filling, f"more-{n}")] for n in range(DOCUMENTS))
            _fill(folder)
    except HoldfastError as fault:
        told["refused"] = fault.code
    monitor = HealthMonitor(store, {}, outboxes={}, run_queues={}, channel_kinds=[], loops=lambda: None)
    health = await monitor.health()
    told["health"] = "; ".join(health.reasons)
    (folder / "rest").unlink()
    async with asyncio.timeout(60):
        await store.commit(create(Filling(id="after", text="still here")))
    found = await store.get(Filling, "after")
    assert found is not None
    told["after"] = found.doc.text
    await store.close()
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
