"""What only the embedded engine has: a file to back up, to shrink, to run out of space."""

from __future__ import annotations

import asyncio
import itertools
import random
import resource
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

import apsw
import pytest
from msgspec import UNSET, UnsetType

from holdfast.app import open_store
from holdfast.clock import to_us
from holdfast.errors import ConfigError, StoreUnavailableError
from holdfast.model import Claim, Document, Index, document, schema_of
from holdfast.store import Increment, Query, Store, create, delete, patch
from holdfast.store.contract.models import QueuedJob
from holdfast.store.port import ClaimRequest
from holdfast.store.sqlite import SqliteEngine
from holdfast.store.sqlite.claims import claim
from holdfast.store.sqlite.connections import MAPPED_BYTES_MAX, open_connection, parse_url
from tests.faults.fork_server import ForkServer
from tests.faults.models import ALL, Counter, Part, Seat
from tests.faults.store_opener import opener


class Progress(Enum):
    WAITING = "waiting"
    WORKING = "working"


@document(
    "errands/{id}",
    claim=Claim(due="due", owner="owner", state=("status", "working")),
    indexes=[Index("labels[]", "status"), Index("labels[]", "fence")],
)
class Errand(Document):
    """Claimed fields in list indexes."""

    id: str
    labels: list[str]
    status: Progress = Progress.WAITING
    owner: str | UnsetType = UNSET
    due: datetime | None = None
    fence: int = 0


opened = opener(ALL, migrate=True)


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    found = ForkServer()
    yield found
    found.close()


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def pragma(url: str, name: str) -> object:
    connection = apsw.Connection(file_of(url))
    row = connection.execute(f"PRAGMA {name}").fetchone()
    connection.close()
    assert row is not None
    return row[0]


async def keep_pairs(store: Store, kept: list[str], *, name: str, count: int | None = None) -> None:
    """Commits of two parts and a count, so many or until cancelled."""
    for n in itertools.count() if count is None else range(count):
        id = f"{name}-{n:05}"
        parts = [Part(id=f"{id}-{half}", round=0, batch=n, text="x" * 500) for half in "ab"]
        await store.commit(*map(create, parts), patch(Counter, "pairs", changes={"value": Increment(1)}))
        kept.append(id)


async def test_reads_in_threads_keep_to_a_few_connections(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        for _ in range(50):
            assert await store.count(Query(Part)) == 0
        held = [
            p
            for p in Path("/proc/self/fd").iterdir()
            if p.is_symlink() and str(p.readlink()) == file_of(sqlite_url)
        ]
        assert len(held) <= 6


async def test_a_backup_among_writers_is_whole_and_has_all_that_was_kept_before(
    sqlite_url: str, tmp_path: Path
) -> None:
    kept: list[str] = []
    async with opened(sqlite_url) as store:
        assert isinstance(store.engine, SqliteEngine)
        await store.commit(create(Counter(id="pairs")))
        writers = [asyncio.create_task(keep_pairs(store, kept, name=f"{n}")) for n in range(8)]
        copies = [tmp_path / f"copy-{n}.db" for n in range(3)]
        sure: list[set[str]] = []
        for copy in copies:
            await keep_pairs(store, kept, name=copy.stem, count=50)
            sure.append(set(kept))
            assert await store.engine.back_up(copy) == copy.stat().st_size
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
    for copy, before in zip(copies, sure, strict=True):
        await assert_whole(f"sqlite:///{copy}", before)


async def assert_whole(url: str, before: set[str]) -> None:
    assert pragma(url, "integrity_check") == "ok"
    async with opened(url) as store:
        ids = {s.doc.id async for s in store.scan(Query(Part).limit(500))}
        counter = await store.get(Counter, "pairs")
    halves = {id[:-2] for id in ids}
    assert {f"{id}-{half}" for id in halves for half in "ab"} == ids
    assert before <= halves
    assert counter is not None
    assert counter.doc.value == len(halves)


async def test_a_backup_never_overwrites(sqlite_url: str, tmp_path: Path) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("somebody's")
    async with opened(sqlite_url) as store:
        assert isinstance(store.engine, SqliteEngine)
        with pytest.raises(ConfigError, match="already exists"):
            await store.engine.back_up(taken)
    assert taken.read_text() == "somebody's"


async def test_a_backup_that_does_not_fit_is_told_and_leaves_nothing_behind(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with opened(sqlite_url) as store:
        await store.commit(*(create(Part(id=f"p{n}", round=1, batch=n, text="x" * 500)) for n in range(400)))
        assert isinstance(store.engine, SqliteEngine)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        try:
            with pytest.raises(StoreUnavailableError, match="free space"):
                await store.engine.back_up(tmp_path / "copy.db")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert list(tmp_path.glob("copy.db*")) == []
        assert await store.engine.back_up(tmp_path / "copy.db") > 50_000


async def test_pruned_space_goes_back_to_the_disk_and_is_used_again(sqlite_url: str) -> None:
    ids = [f"{n:05}" for n in range(5_000)]
    async with opened(sqlite_url) as store:
        sizes: list[tuple[object, object]] = []
        for _ in range(3):
            await store.settle([[create(Seat(id=id, taken_by="x" * 1_000))] for id in ids])
            full = pragma(sqlite_url, "page_count")
            for start in range(0, len(ids), 500):
                await store.settle([[delete(Seat, id)] for id in ids[start : start + 500]])
            # The writer gives space back between commits, when nobody waits for it.
            await store.commit(create(Counter(id=f"last-{len(sizes)}")))
            sizes.append((full, pragma(sqlite_url, "page_count")))
    (full, empty), *later = sizes
    assert isinstance(full, int)
    assert isinstance(empty, int)
    assert empty < full / 2, sizes
    assert all(isinstance(again, int) and again <= full * 1.1 for again, _ in later), sizes


async def test_a_full_disk_is_told_and_loses_nothing(fork_server: ForkServer, sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        said = fork_server.alone("fill_disk", url=sqlite_url, bytes_max=2_000_000)
        found = {s.doc.id async for s in store.scan(Query(Seat).limit(500))}
    assert said["code"] == StoreUnavailableError.code
    assert len(said["kept"]) > 10
    assert found == {f"{id}-{n}" for id in said["kept"] for n in range(3)} | {"afterwards"}
    assert pragma(sqlite_url, "integrity_check") == "ok"


async def test_a_folder_that_can_not_be_written_is_told_and_left_alone(fork_server: ForkServer) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kept.db"
        async with opened(f"sqlite:///{path}") as store:
            await store.commit(create(Counter(id="c", value=3)))
        path.chmod(0o444)
        path.parent.chmod(0o555)
        for name in ("kept.db", "new.db"):
            said = fork_server.alone("open_as_stranger", url=f"sqlite:///{path.parent / name}")
            assert said["code"] == StoreUnavailableError.code
            assert "check that the folder is writable" in said["message"]
        path.parent.chmod(0o755)
        path.chmod(0o644)
        async with opened(f"sqlite:///{path}") as store:
            found = await store.get(Counter, "c")
    assert found is not None
    assert found.doc.value == 3


async def test_a_claim_is_seen_through_an_index_on_a_list(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [Errand])
    await store.migrate()
    await store.commit(create(Errand(id="e", labels=["a", "b"], due=store.clock.now())))
    asked = Query(Errand).where("labels", "array-contains", "b")
    (claimed,) = await store.claim_due(Errand, limit=1, lease_s=60, owner="w")
    assert (claimed.doc.status, claimed.doc.owner) == (Progress.WORKING, "w")
    assert (await store.query(asked.where("status", "==", "waiting"))).items == []
    assert (await store.query(asked.where("status", "==", "working"))).items == [claimed]
    assert (await store.query(asked.order_by("fence"))).items == [claimed]
    await store.close()


async def test_closing_finishes_what_is_queued(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, ALL)
    await store.migrate()
    waiting = [asyncio.create_task(store.commit(create(Counter(id=f"{n:04}")))) for n in range(2_500)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*waiting)) == 2_500
    with pytest.raises(StoreUnavailableError):
        await store.commit(create(Counter(id="late")))
    async with opened(sqlite_url) as again:
        assert await again.count(Query(Counter)) == 2_500


async def test_a_claim_that_finds_nothing_due_needs_no_write_lock(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [Errand])
    await store.migrate()
    later = store.clock.now() + timedelta(hours=1)
    await store.commit(create(Errand(id="later", labels=[], due=later)))
    assert await store.claim_due(Errand, limit=1, lease_s=30) == []
    holder = apsw.Connection(file_of(sqlite_url))
    holder.execute("BEGIN IMMEDIATE")
    assert await store.claim_due(Errand, limit=1, lease_s=30) == []
    holder.execute("ROLLBACK")
    holder.close()
    await store.close()


async def test_a_claim_from_lanes_without_anything_due_needs_no_write_lock(sqlite_url: str) -> None:
    """So asks a worker whose own lanes are full, after every commit of another process."""
    store = await open_store(sqlite_url, [QueuedJob])
    await store.migrate()
    worker, now = store.privileged(), store.clock.now()
    later = now + timedelta(hours=1)
    jobs = [QueuedJob(id=f"full{n}", tenant_id="t", due=now, lane="full") for n in range(5)]
    jobs.append(QueuedJob(id="idle", tenant_id="t", due=later, lane="idle"))
    await store.tenant("t").settle([[create(job)] for job in jobs])
    holder = apsw.Connection(file_of(sqlite_url))
    holder.execute("BEGIN IMMEDIATE")
    assert await worker.claim_due(QueuedJob, limit=9, lease_s=30, per_lane=2, skip_lanes=["full"]) == []
    assert await worker.claim_due(QueuedJob, limit=9, lease_s=30, only_lanes=["idle", "none"]) == []
    holder.execute("ROLLBACK")
    holder.close()
    assert len(await worker.claim_due(QueuedJob, limit=9, lease_s=30, skip_lanes=["idle"])) == 5
    await store.close()


async def test_a_short_look_at_lanes_never_hides_what_a_claim_would_find(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [QueuedJob])
    await store.migrate()
    engine, schema, now, rng = store.engine, schema_of(QueuedJob), store.clock.now(), random.Random(7)
    assert isinstance(engine, SqliteEngine)
    found = 0
    for round in range(60):
        lanes = [f"{rng.randrange(40):02}" for _ in range(rng.randrange(1, 60))]
        jobs = [
            QueuedJob(
                id=f"{round}-{n}", tenant_id=rng.choice("tu"), lane=lane,
                due=now + timedelta(hours=rng.choice((-1, 1, 1, 1, 1, 1, 1, 1))),
            )
            for n, lane in enumerate(lanes)
        ]  # fmt: skip
        await store.privileged().settle([[create(job)] for job in jobs])
        request = ClaimRequest(
            schema=schema, now_us=to_us(now), lease_us=3_600_000_000, limit=50, owner="me",
            tenant=rng.choice((None, "t")), per_lane=rng.choice((None, 2)),
            after_lane=rng.choice((None, "20")),
            skip_lanes=frozenset(rng.sample(lanes, rng.randrange(len(lanes)))),
            only_lanes=rng.choice((None, frozenset(rng.sample(lanes, rng.randrange(len(lanes)))))),
        )  # fmt: skip
        expected = engine._may_find(request)
        claimed = await engine._writer.do(lambda transaction: claim(transaction, request))  # noqa: B023
        assert expected or not claimed
        found += bool(claimed)
        await store.privileged().settle([[delete(QueuedJob, job.id)] for job in jobs])
    assert 10 < found < 60
    await store.close()


@pytest.mark.parametrize(("writing", "bytes_max"), [(True, 0), (False, MAPPED_BYTES_MAX)])
def test_a_bounded_part_of_the_file_is_mapped_by_readers_alone(
    sqlite_url: str, writing: bool, bytes_max: int
) -> None:
    connection = open_connection(parse_url(sqlite_url), writing=writing)
    assert connection.execute("PRAGMA mmap_size").fetchall() == [(bytes_max,)]
    connection.close()
