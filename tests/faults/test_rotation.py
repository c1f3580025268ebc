"""A rotation of many secrets beside writers, killed again and again: every secret stays readable.

`HOLDFAST_SECRETS` says how many on SQLite (50,000); PostgreSQL takes a tenth.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.errors import DecryptionError
from holdfast.kit.vault import Rotation, Vault, new_key
from holdfast.store import Increment, Query, Store, create, patch
from tests.faults.rotation_worker import DOCUMENTS, Grant

SECRETS = int(os.environ.get("HOLDFAST_SECRETS", "50000"))
KILLS = 6
COUNTS = {"sqlite": SECRETS, "postgres": SECRETS // 10}


def token(n: int) -> str:
    return f"1//refresh-{n}"


async def fill(store: Store, vault: Vault, count: int) -> None:
    field = vault.field(Grant, "token")
    names = [f"g-{n:07}" for n in range(count)]
    commits = [
        [
            create(Grant(id=names[n], token=field.seal(token(n), names[n])))
            for n in range(at, min(at + 250, count))
        ]
        for at in range(0, count, 250)
    ]
    for at in range(0, len(commits), 20):
        await store.settle(commits[at : at + 20])


async def start(url: str, keys: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "tests.faults.rotation_worker", url,
        stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
        env={**os.environ, "HOLDFAST_KEYS": keys},
    )  # fmt: skip


async def lines(process: asyncio.subprocess.Process) -> AsyncIterator[tuple[int, int]]:
    assert process.stdout is not None
    async for line in process.stdout:
        walk, seen = line.split()
        yield int(walk), int(seen)


async def killed(url: str, keys: str, *, after: int) -> tuple[int, int]:
    """Where a rotation was, that was killed after so many batches."""
    process = await start(url, keys)
    told = []
    async for line in lines(process):
        told.append(line)
        if len(told) == after:
            process.kill()
    assert await process.wait() == -9
    return told[-1]


async def use(store: Store, count: int, stop: asyncio.Event) -> int:
    """Count up one grant after another, as a service would that never heard of the rotation."""
    used = 0
    while not stop.is_set():
        name = f"g-{random.randrange(count):07}"
        await store.commit(patch(Grant, name, changes={"used": Increment(1)}))
        used += 1
        await asyncio.sleep(0.001)
    return used


async def unreadable(store: Store, vault: Vault) -> list[str]:
    """The grants that don't open to what they were."""
    field, bad = vault.field(Grant, "token"), []
    async for snapshot in store.scan(Query(Grant).limit(1_000)):
        name = snapshot.doc.id
        try:
            if field.open(snapshot.doc.token, name).reveal() != token(int(name[2:])):
                bad.append(name)
        except DecryptionError:
            bad.append(name)
    return bad


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_rotation_killed_again_and_again_leaves_every_secret_readable(url: str) -> None:
    count = COUNTS[url.partition(":")[0].removesuffix("ql")]
    old, new = new_key("old"), new_key("new")
    both = Vault.from_settings(f"{new},{old}")
    store = await open_store(url, DOCUMENTS)
    await store.migrate()
    await fill(store, Vault.from_settings(old), count)
    stop = asyncio.Event()
    using = asyncio.create_task(use(store, count, stop))
    batches = max(1, count // 200 // (KILLS + 2))
    reached = [await killed(url, f"{new},{old}", after=random.randint(1, batches)) for _ in range(KILLS)]
    # Each went on where the one before was killed, give or take the batch it was in.
    assert reached == sorted(reached)
    assert reached[0] < reached[-1]
    assert await unreadable(store, both) == []
    last = await start(url, f"{new},{old}")
    told = [line async for line in lines(last)]
    assert await last.wait() == 0
    stop.set()
    used = await using
    assert told[0] > reached[-1]
    assert told[-1][1] == count
    assert await unreadable(store, Vault.from_settings(new)) == []
    assert sum([s.doc.used async for s in store.scan(Query(Grant).limit(1_000))]) == used > 0
    (rotation,) = (await store.privileged().query(Query(Rotation).order_by("-started_at"))).docs
    assert (rotation.state, rotation.unreadable) == ("finished", [])
    await store.close()
