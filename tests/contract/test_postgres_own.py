"""What only the PostgreSQL engine has: batches, several processes on one server, a pooler in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast.errors import (
    AlreadyExistsError,
    ConfigError,
    InvalidError,
    NotFoundError,
    StoreUnavailableError,
)
from holdfast.model import Claim, Document, Index, document
from holdfast.store import Catalog, Committed, Increment, Query, Store, create, delete, patch, postgres, put
from holdfast.store.contract.models import ALL, NOON, Chore, Note
from holdfast.store.postgres.address import parse_url
from holdfast.store.postgres.commit_queue import LARGE_MIN
from holdfast.testing import ManualClock
from holdfast.testing.process import ServerProcess, free_port


@contextlib.asynccontextmanager
async def opened(url: str, *classes: type[Document]) -> AsyncIterator[Store]:
    store = Store(await postgres.connect(url, Catalog(classes or ALL)), clock=ManualClock(NOON))
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Store]:
    async with opened(f"{postgres_url}?writers=1") as found:
        await found.migrate()
        yield found


async def test_commits_that_wait_together_land_in_one_transaction(store: Store, postgres_url: str) -> None:
    await store.commit(create(Chore(id="warm")))
    connection = await asyncpg.connect(postgres_url)
    await asyncio.gather(*(store.commit(create(Chore(id=f"{n}"))) for n in range(200)))
    sharing = await connection.fetch(
        "SELECT xmin::text, count(*) FROM chores WHERE _key <> 'warm' GROUP BY 1"
    )
    await connection.close()
    assert sum(row[1] for row in sharing) == 200
    assert len(sharing) <= 3


async def test_commits_of_one_batch_see_one_another_in_order(store: Store) -> None:
    more = {"done": Increment(1)}
    outcomes = await store.settle([
        [patch(Chore, "c", changes=more)], [create(Chore(id="c"))], [patch(Chore, "c", changes=more)],
        [create(Chore(id="c"))], [patch(Chore, "c", changes=more), create(Chore(id="d"))],
        [delete(Chore, "d")], [create(Chore(id="d", done=9))], [put(Note(id="n", labels=["a"]))],
        [put(Note(id="n", labels=["b"]))],
    ])  # fmt: skip
    refused = [type(outcome) for outcome in outcomes if not isinstance(outcome, Committed)]
    assert refused == [NotFoundError, AlreadyExistsError]
    found = [await store.get(Chore, id) for id in "cd"]
    assert [one.doc.done for one in found if one] == [2, 9]
    for label, count in (("a", 0), ("b", 1)):
        assert await store.count(Query(Note).where("labels", "array-contains", label)) == count


async def test_a_large_request_does_not_wait_for_a_busy_writer(store: Store, postgres_url: str) -> None:
    await store.commit(create(Chore(id="held")), create(Chore(id="other")))
    holder, watcher = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    try:
        async with opened(postgres_url) as two_writers:
            await two_writers.commit(create(Chore(id="warm")))
            await holder.execute("BEGIN")
            await holder.execute("UPDATE chores SET _version = _version WHERE _key = 'held'")
            held = asyncio.ensure_future(two_writers.commit(patch(Chore, "held", changes={"done": 1})))
            while not await watcher.fetchval(waiting):
                pass
            small = asyncio.ensure_future(two_writers.commit(patch(Chore, "other", changes={"done": 1})))
            outcomes = await two_writers.settle([[create(Chore(id=f"{n}"))] for n in range(LARGE_MIN)])
            assert {type(outcome) for outcome in outcomes} == {Committed}
            assert not held.done()
            assert not small.done(), "the second writer takes large requests alone"
            await holder.execute("ROLLBACK")
            await asyncio.gather(held, small)
    finally:
        await holder.close()
        await watcher.close()


async def test_commits_of_one_long_call_are_made_in_their_order(postgres_url: str, store: Store) -> None:
    async with opened(postgres_url) as two_writers:
        more = [[patch(Chore, f"{n}", changes={"done": Increment(1)})] for n in range(1_300)]
        made = [[create(Chore(id=f"{n}"))] for n in range(1_300)]
        outcomes = await two_writers.settle([*made, *more, *more])
        assert {type(outcome) for outcome in outcomes} == {Committed}
        found = await two_writers.get_many(Chore, [f"{n}" for n in range(1_300)])
        assert {one.doc.done for one in found if one is not None} == {2}


async def test_a_document_the_server_refuses_fails_alone(store: Store, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("ALTER TABLE notes ADD CHECK (whole <> 13)")
    await connection.close()
    outcomes = await store.settle([[create(Note(id=f"{n}", whole=n))] for n in (12, 13, 14)])
    assert [type(outcome) for outcome in outcomes] == [Committed, InvalidError, Committed]
    assert [bool(one) for one in await store.get_many(Note, ["12", "13", "14"])] == [True, False, True]


async def test_stores_that_create_the_same_documents_share_them_out(postgres_url: str, store: Store) -> None:
    async with opened(postgres_url) as other:
        alone = [[create(Chore(id=f"{n}"))] for n in range(300)]
        paired = [[create(Note(id=f"{n}")), create(Chore(id=f"pair-{n}"))] for n in range(100)]
        answers = await asyncio.gather(*(
            one.settle(writes) for writes in (alone, paired, paired[::-1]) for one in (store, other)
        ))  # fmt: skip
    first, second = answers[0], answers[1]
    assert all(
        [isinstance(a, Committed), isinstance(b, Committed)].count(True) == 1
        for a, b in zip(first, second, strict=True)
    )
    landed = [outcome for answer in answers[2:] for outcome in answer if isinstance(outcome, Committed)]
    assert len(landed) == 100
    assert await store.count(Query(Note)) == 100


async def test_a_commit_in_one_store_wakes_another_within_fifty_milliseconds(
    postgres_url: str, store: Store
) -> None:
    async with opened(postgres_url) as other:
        subscription = other.watch(Chore)
        await store.commit(create(Chore(id="warm")))
        await subscription.wait(1)
        waits = []
        for n in range(10):
            waiting = asyncio.create_task(subscription.wait(5))
            await store.commit(create(Chore(id=f"{n}")))
            committed = time.monotonic()
            assert await waiting
            waits.append(time.monotonic() - committed)
        # Not the median: where every core has other work, most wait for a core.
        assert sorted(waits)[2] < 0.5
        subscription.close()


async def test_marks_of_answered_batches_are_cleared_away(store: Store, postgres_url: str) -> None:
    for n in range(600):
        await store.commit(put(Note(id="n", whole=n)))
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("SELECT count(*) FROM _holdfast_batches") < 520
    await connection.close()


@document("tasks/{id}", claim=Claim(due="due", state=("state", "taken")), indexes=[Index("tags[]", "state")])
class Task(Document):
    id: str
    due: datetime | None = None
    fence: int = 0
    state: str = "new"
    tags: list[str] = []


async def test_a_claim_is_seen_by_questions_about_lists_too(postgres_url: str) -> None:
    async with opened(postgres_url, Task) as store:
        await store.migrate()
        await store.commit(create(Task(id="t", due=NOON, tags=["a"])))
        await store.claim_due(Task, limit=1, lease_s=5)
        asked = Query(Task).where("tags", "array-contains", "a").where("state", "==", "taken")
        assert [doc.fence for doc in (await store.query(asked)).docs] == [1]


async def test_a_database_not_migrated_yet_says_so(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        for ask in (store.get(Note, "n"), store.commit(create(Note(id="n")))):
            with pytest.raises(ConfigError, match="holdfast schema migrate"):
                await ask


async def test_two_migrations_at_once_do_each_thing_once(postgres_url: str) -> None:
    async with opened(postgres_url) as one, opened(postgres_url) as two:
        done = await asyncio.gather(one.migrate(), two.migrate())
        assert sorted(map(bool, done)) == [False, True]
        assert await one.diff() == []


async def test_a_closed_store_says_so(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.migrate()
        waiting = asyncio.create_task(store.commit(create(Note(id="last"))))
        await asyncio.sleep(0)
    await waiting
    for ask in (store.get(Note, "n"), store.commit(create(Note(id="n")))):
        with pytest.raises(StoreUnavailableError, match="closed"):
            await ask


@pytest.mark.parametrize("query", ["pooler=maybe", "readers=0", "writers=1.5", "retry_s=soon"])
def test_words_in_the_url_that_make_no_sense_are_refused(query: str) -> None:
    with pytest.raises(ConfigError):
        parse_url(f"postgresql://u@h/d?{query}")


@pytest.mark.parametrize("port", ["db", "70000"])
def test_a_port_that_is_none_is_refused_in_words(port: str) -> None:
    with pytest.raises(ConfigError, match="port"):
        parse_url(f"postgresql://u@h:{port}/d")


def test_our_words_are_taken_out_of_the_url_and_the_rest_left() -> None:
    address = parse_url(
        "postgresql://u:p@h:6432/d?sslmode=require&pooler=transaction&direct=db:5432&readers=3"
    )
    assert address.dsn == "postgresql://u:p@h:6432/d?sslmode=require"
    assert address.direct == "postgresql://u:p@db:5432/d?sslmode=require"
    assert (address.pooled, address.readers) == (True, 3)


@pytest.fixture
def pooler(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    """PgBouncer in transaction mode, with fewer connections to the server than callers have to it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing = "no transaction pooler: install pgbouncer"
        request.node.user_properties.append(("engine-missing", f"pgbouncer: {missing}"))
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    request.node.user_properties.append(("engine", "pgbouncer"))
    parts, port = urlsplit(postgres_url), free_port()
    with tempfile.TemporaryDirectory(prefix="holdfast-pooler-") as name:
        folder = Path(name)
        (folder / "ini").write_text(
            f"[databases]\n* = host={parts.hostname} port={parts.port} user={parts.username}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n"
        )
        owner = _unprivileged(folder)
        process = ServerProcess([program, str(folder / "ini")], log=folder / "log", owner=owner)
        try:
            process.wait_until(lambda: _listens(port), timeout_s=10)
            yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?pooler=transaction"
        finally:
            process.end(signal.SIGTERM)


def _unprivileged(folder: Path) -> tuple[int, int] | None:
    """PgBouncer, too, refuses to run as root; whoever runs it must be able to read its settings."""
    if os.geteuid() != 0:
        return None
    folder.chmod(0o755)
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


async def test_everything_works_through_a_transaction_pooler(pooler: str, postgres_url: str) -> None:
    direct = urlsplit(postgres_url).netloc.rpartition("@")[2]
    async with opened(f"{pooler}&direct={direct}") as store, opened(pooler) as plain:
        assert store.capabilities.wakes_processes
        assert not plain.capabilities.wakes_processes
        assert await store.migrate()
        assert await plain.diff() == []
        subscription = store.watch(Chore)
        await subscription.wait(0.2)
        await asyncio.gather(*(plain.commit(create(Chore(id=f"{n}", due=NOON))) for n in range(60)))
        assert await subscription.wait(5)
        more = {"done": Increment(1)}
        changes = [patch(Chore, f"{n % 60}", changes=more) for n in range(240)]
        await asyncio.gather(*((store, plain)[n % 2].commit(change) for n, change in enumerate(changes)))
        found = await asyncio.gather(*(store.get(Chore, f"{n}") for n in range(60)))
        assert [one.doc.done for one in found if one] == [4] * 60
        claimed = await asyncio.gather(*(s.claim_due(Chore, limit=20, lease_s=9) for s in (store, plain) * 2))
        assert sorted(one.key for taken in claimed for one in taken) == sorted(f"{n}" for n in range(60))
        assert max(map(len, claimed)) <= 20
        subscription.close()


async def test_a_pooler_that_was_not_announced_is_named_with_the_setting(pooler: str) -> None:
    async with opened(pooler.partition("?")[0]) as store:
        with pytest.raises(ConfigError, match=r"add \?pooler=transaction"):
            await store.get(Chore, "1")
        with pytest.raises(ConfigError, match=r"add \?pooler=transaction"):
            await store.commit(create(Chore(id="1", due=NOON)))


async def test_without_a_direct_address_subscriptions_are_notified_by_polling(pooler: str) -> None:
    async with opened(pooler) as store:
        subscription = store.watch(Chore)
        assert await subscription.wait(5)
        subscription.close()
