"""What a worker process does: each role opens the store, says so, waits for the others, and works."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pwd
import random
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from holdfast.app import open_store
from holdfast.clock import to_us
from holdfast.errors import AlreadyExistsError, LeaseLostError, StoreUnavailableError
from holdfast.store import Committed, Increment, Snapshot, Store, Transaction, create, delete, patch, put
from tests.faults.fork_server import Role, Say
from tests.faults.joint_commit_worker import commit_jointly
from tests.faults.models import ALL, Counter, NewPaper, Part, Seat, Task
from tests.faults.operation_worker import operate

Order = dict[str, Any]


@contextlib.asynccontextmanager
async def at_work(order: Order, say: Say) -> AsyncIterator[Store]:
    store = await open_store(order["url"], ALL)
    say("open")
    os.read(order["barrier"], 1)
    try:
        yield store
    finally:
        await store.close()


async def for_a_while(order: Order, act: Callable[[], Awaitable[object]]) -> int:
    """Several tasks repeat an act until the time is up; gives how often it was done."""
    end = time.monotonic() + order["seconds"]
    done = 0

    async def repeat() -> None:
        nonlocal done
        while time.monotonic() < end:
            await act()
            done += 1

    await asyncio.gather(*(repeat() for _ in range(order.get("tasks", 4))))
    return done


async def increment(order: Order, say: Say) -> None:
    async with at_work(order, say) as store:
        one_more = patch(Counter, "shared", changes={"value": Increment(1)})
        say(json.dumps({"done": await for_a_while(order, lambda: store.commit(one_more))}))


async def transact(order: Order, say: Say) -> None:
    async def add_one(transaction: Transaction) -> None:
        found = await transaction.get(Counter, "shared")
        assert found is not None
        transaction.write(put(Counter(id="shared", value=found.doc.value + 1)))

    async with at_work(order, say) as store:
        done = await for_a_while(order, lambda: store.transact(add_one, attempts=1_000))
        say(json.dumps({"done": done}))


async def take_seats(order: Order, say: Say) -> None:
    ids = [f"seat-{order['first'] + n:04}" for n in range(order["seats"])]
    random.shuffle(ids)
    mine: list[str] = []

    async def take(store: Store, places: list[str]) -> None:
        for id in places:
            with contextlib.suppress(AlreadyExistsError):
                await store.commit(create(Seat(id=id, taken_by=order["name"])))
                mine.append(id)

    async with at_work(order, say) as store:
        await asyncio.gather(*(take(store, ids[n::4]) for n in range(4)))
    say(json.dumps({"name": order["name"], "mine": mine}))


async def claim(order: Order, say: Say) -> None:
    """Takes tasks, gives some back at once, and lets the lease of others run out."""
    turns: list[tuple[str, int, int, int]] = []
    lease_s = 0.05

    async def take_some(store: Store) -> None:
        for taken in await store.claim_due(Task, limit=3, lease_s=lease_s, owner=order["name"]):
            assert taken.doc.due is not None
            ends = to_us(taken.doc.due)
            began = ends - round(lease_s * 1e6)
            if random.random() < 0.7:
                ends = await give_back(store, taken) or ends
            turns.append((taken.doc.id, taken.doc.fence, began, ends))

    async with at_work(order, say) as store:
        await for_a_while(order | {"tasks": 2}, lambda: take_some(store))
    say(json.dumps({"done": len(turns), "turns": turns}))


async def give_back(store: Store, taken: Snapshot[Task]) -> int | None:
    """When the task was free again, unless the lease was lost before."""
    free = store.clock.now()
    try:
        await store.commit(patch(Task, taken.doc.id, changes={"due": free}, expect=taken.fenced))
    except LeaseLostError:
        return None
    return to_us(free)


async def write_batches(order: Order, say: Say) -> None:
    """Commits whole batches, for ever: three parts and the count of batches; removes every fourth again."""
    async with at_work(order, say) as store:
        await asyncio.gather(*(_batches(store, order["round"], lane, say) for lane in range(3)))


async def _batches(store: Store, round: int, lane: int, say: Say) -> None:
    batch = lane
    while True:
        ids = [f"{round:04}-{batch:05}-{part}" for part in "abc"]
        text = random.choice("xyz") * random.randrange(800)
        await store.commit(
            *(
                create(Part(id=id, round=round, batch=batch, text=text, labels=[id[-1], text[:1]]))
                for id in ids
            ),
            patch(Counter, "shared", changes={"value": Increment(1)}),
        )
        say(f"kept {batch}")
        if batch % 4 == 0:
            say(f"removing {batch}")
            await store.commit(
                *(delete(Part, id) for id in ids),
                patch(Counter, "shared", changes={"value": Increment(-1)}),
            )
            say(f"removed {batch}")
        batch += 3


async def settle_creates(order: Order, say: Say) -> None:
    """Settles creates by the hundred, for ever, as the only caller."""
    async with at_work(order, say) as store:
        for batch in itertools.count():
            ids = [f"{order['round']:04}-{batch:05}-{n:02}" for n in range(100)]
            outcomes = await store.settle([create(Counter(id=id))] for id in ids)
            assert all(isinstance(one, Committed) for one in outcomes)
            say(f"kept {batch}")


async def migrate(order: Order, say: Say) -> None:
    store = await open_store(order["url"], [NewPaper])
    say("open")
    await store.migrate()
    await store.close()


async def fill_disk(order: Order, say: Say) -> None:
    """Writes until the system refuses more bytes, then, with room again, once more."""
    kept: list[str] = []
    async with at_work(order, say) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["bytes_max"], resource.RLIM_INFINITY))
        try:
            while True:
                writes = [create(Seat(id=f"{len(kept):05}-{n}", taken_by="x" * 9_000)) for n in range(3)]
                await store.commit(*writes)
                kept.append(f"{len(kept):05}")
        except StoreUnavailableError as refusal:
            said = {"code": refusal.code, "kept": kept}
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await store.commit(create(Seat(id="afterwards", taken_by="")))
    say(json.dumps(said))


async def open_as_stranger(order: Order, say: Say) -> None:
    """Opens the store as somebody who may read its folder and not write there."""
    if os.geteuid() == 0:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        await open_store(order["url"], ALL)
    except StoreUnavailableError as refusal:
        say(json.dumps({"code": refusal.code, "message": refusal.message}))


ROLES: dict[str, Role] = {
    "increment": increment, "transact": transact, "take_seats": take_seats, "claim": claim,
    "write_batches": write_batches, "settle_creates": settle_creates, "migrate": migrate,
    "fill_disk": fill_disk, "open_as_stranger": open_as_stranger, "commit_jointly": commit_jointly,
    "operate": operate,
}  # fmt: skip
