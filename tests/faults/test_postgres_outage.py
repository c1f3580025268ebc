"""A server that restarts, crashes, is away, or loses the link at the worst moment."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import asyncpg
import pytest

from holdfast.errors import (
    AlreadyExistsError,
    HoldfastError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    VersionConflictError,
)
from holdfast.model import Claim, Document, document
from holdfast.store import (
    Catalog,
    Committed,
    Increment,
    Query,
    Store,
    check,
    create,
    delete,
    patch,
    postgres,
    put,
)
from holdfast.store.postgres.link_probe import PROBE_S
from holdfast.testing import OwnPostgresServer
from tests.faults.severing_proxy import Loss, severing_proxy
from tests.kit.eventually import until

CALLERS = 12
RESUMES_WITHIN_S = 20.0


@document("counters/{id}")
class Counter(Document):
    id: str
    count: int = 0


@document("receipts/{id}")
class Receipt(Document):
    id: str
    caller: int = 0


@document("rounds/{id}", claim=Claim(due="due", fence="fence", owner="held_by"))
class Round(Document):
    id: str
    due: datetime | None = None
    fence: int = 0
    held_by: str = ""


@document("errands/{id}", claim=Claim(due="due"))
class Errand(Document):
    id: str
    due: datetime | None = None
    fence: int = 0
    note: str = ""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = Store(await postgres.connect(url, Catalog([Counter, Receipt, Errand, Round])))
    try:
        await store.migrate()
        yield store
    finally:
        await store.close()


class Load:
    """Callers that count and create without pause, and remember what they were told."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.counted = 0
        self.created: set[str] = set()
        self.refused: list[HoldfastError] = []
        self._stop = False
        self._progress = asyncio.Condition()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        callers = [asyncio.create_task(self._call(number)) for number in range(CALLERS)]
        try:
            yield
        finally:
            self._stop = True
            await asyncio.gather(*callers)

    async def more(self, acknowledged: int) -> None:
        """Return once so many more writes were acknowledged."""
        goal = self.counted + len(self.created) + acknowledged
        async with self._progress:
            await self._progress.wait_for(lambda: self.counted + len(self.created) >= goal)

    async def _call(self, number: int) -> None:
        turn = 0
        while not self._stop:
            turn += 1
            try:
                if number % 2:
                    await self._store.commit(patch(Counter, "c", changes={"count": Increment(1)}))
                    self.counted += 1
                else:
                    await self._store.commit(create(Receipt(id=f"{number}-{turn}", caller=number)))
                    self.created.add(f"{number}-{turn}")
            except HoldfastError as refusal:
                self.refused.append(refusal)
            async with self._progress:
                self._progress.notify_all()

    async def check(self) -> None:
        """Everything acknowledged is there, once; everything else was refused in clear words."""
        unknown = [r for r in self.refused if isinstance(r, OutcomeUnknownError)]
        others = [r for r in self.refused if r not in unknown and not isinstance(r, StoreUnavailableError)]
        assert others == []
        counter = await self._store.get(Counter, "c")
        assert counter is not None
        assert self.counted <= counter.doc.count <= self.counted + len(unknown)
        kept = {item.doc.id async for item in self._store.scan(Query(Receipt))}
        assert self.created <= kept
        assert len(kept - self.created) <= len(unknown)


async def kill_backends(url: str) -> int:
    """End every connection of the store, as an administrator or a failover would."""
    connection = await asyncpg.connect(url)
    try:
        killed = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast' AND datname = current_database()"
        )
        return len(killed)
    finally:
        await connection.close()


async def test_killed_backends_in_mid_load_lose_nothing_and_double_nothing(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.commit(create(Counter(id="c")))
        load = Load(store)
        async with load.running():
            for _ in range(20):
                await load.more(30)
                assert await kill_backends(postgres_url) > 0
            await load.more(30)
        assert load.refused == []
        await load.check()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restarted_server_in_mid_load_loses_nothing_and_doubles_nothing(
    own_postgres: OwnPostgresServer, mode: str
) -> None:
    async with opened(own_postgres.url) as store:
        await store.commit(create(Counter(id="c")))
        load = Load(store)
        async with load.running():
            for _ in range(3):
                await load.more(100)
                await asyncio.to_thread(own_postgres.restart, "fast" if mode == "fast" else "immediate")
                back = time.monotonic()
                await load.more(1)
                assert time.monotonic() - back < RESUMES_WITHIN_S
            await load.more(100)
        assert load.refused == []
        await load.check()


async def test_while_the_server_is_away_callers_are_told_so_and_later_served_again(
    own_postgres: OwnPostgresServer,
) -> None:
    async with opened(f"{own_postgres.url}?retry_s=0.3") as store:
        await store.commit(create(Receipt(id="before")))
        await asyncio.to_thread(own_postgres.stop)
        asked: list[Callable[[], Awaitable[object]]] = [
            lambda: store.get(Receipt, "before"),
            lambda: store.query(Query(Receipt)),
            lambda: store.count(Query(Receipt)),
            lambda: store.commit(create(Receipt(id="during"))),
            lambda: store.commit(patch(Receipt, "before", changes={"caller": 9})),
        ]
        for ask in asked:
            with pytest.raises(StoreUnavailableError) as told:
                await ask()
            assert told.value.after_s > 0
        await asyncio.to_thread(own_postgres.start)
        kept = await store.get(Receipt, "before")
        assert kept is not None
        assert kept.doc.caller == 0
        assert await store.get(Receipt, "during") is None
        await store.commit(create(Receipt(id="during")))


async def test_a_caller_waits_out_a_short_absence(own_postgres: OwnPostgresServer) -> None:
    async with opened(own_postgres.url) as store:
        await asyncio.to_thread(own_postgres.stop, "immediate")
        waiting = [
            asyncio.create_task(store.commit(create(Receipt(id="patient")))),
            asyncio.create_task(store.query(Query(Receipt))),
        ]
        await asyncio.to_thread(own_postgres.start)
        await asyncio.gather(*waiting)
        assert await store.get(Receipt, "patient") is not None


async def test_a_subscription_is_notified_again_after_a_restart(own_postgres: OwnPostgresServer) -> None:
    async with opened(own_postgres.url) as store, opened(own_postgres.url) as other:
        subscription = store.watch(Receipt)
        assert await subscription.wait(5), "commits from before it listened are covered by one notification"
        await other.commit(create(Receipt(id="first")))
        assert await subscription.wait(5)
        await asyncio.to_thread(own_postgres.restart)
        assert await subscription.wait(5), "commits missed meanwhile are covered by one notification"
        await subscription.wait(0.1)
        await other.commit(create(Receipt(id="second")))
        assert await subscription.wait(5)
        subscription.close()


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_a_claim_whose_link_breaks_is_had_by_whoever_made_it(postgres_url: str, loss: Loss) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(url) as store:
        now = store.clock.now()
        await store.settle([create(Round(id=f"r{n}", due=now))] for n in range(3))
        proxy.sever(loss, when=lambda data: b"the-owner" in data)
        taken = await store.claim_due(Round, limit=2, lease_s=60, owner="the-owner")
        assert proxy.severed == 1
        assert [(one.doc.id, one.doc.fence) for one in taken] == [("r0", 1), ("r1", 1)]
        await store.commit(patch(Round, "r0", changes={"due": None}, expect=taken[0].fenced))
        rest = await store.claim_due(Round, limit=9, lease_s=60, owner="other")
        assert [one.doc.id for one in rest] == ["r2"]


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_a_create_whose_link_breaks_lands_exactly_once(postgres_url: str, loss: Loss) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Receipt(id="warm")))
        # The statement is known to the server by now: what is sent for this document names its id.
        proxy.sever(loss, when=lambda data: b"the-one" in data)
        await store.commit(create(Receipt(id="the-one")))
        assert proxy.severed == 1
        with pytest.raises(AlreadyExistsError):
            await store.commit(create(Receipt(id="the-one")))


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_a_refused_create_stays_refused_when_its_link_breaks(postgres_url: str, loss: Loss) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Receipt(id="the-one")))
        proxy.sever(loss, when=lambda data: b"fresh" in data)
        outcomes = await store.settle([[create(Receipt(id="the-one"))], [create(Receipt(id="fresh"))]])
        assert proxy.severed == 1
        assert [isinstance(outcome, AlreadyExistsError) for outcome in outcomes] == [True, False]
        assert await store.get(Receipt, "fresh") is not None


@pytest.mark.parametrize("loss", ["request", "answer"])
@pytest.mark.parametrize(
    ("moment", "locked"),
    [
        (b"COMMIT\x00", True),
        (b"BEGIN\x00", True),
        (b"the-one", True),
        (b"the-one", False),
        (b"beside", False),
    ],
)
async def test_a_change_whose_link_breaks_is_made_exactly_once(
    postgres_url: str, loss: Loss, moment: bytes, locked: bool
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Counter(id="the-one")), create(Counter(id="seen")))
        change = patch(Counter, "the-one", changes={"count": Increment(1)})
        await store.commit(change)
        proxy.sever(loss, when=lambda data: moment in data)
        # What a commit only checks is locked, in a transaction of several statements.
        checks = [check(Counter, "seen")] if locked else []
        await store.commit(change, put(Receipt(id="beside")), *checks)
        assert proxy.severed == 1
        kept = await store.get(Counter, "the-one")
        assert kept is not None
        assert kept.doc.count == 2
        assert await store.get(Receipt, "beside") is not None


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_settling_whose_link_breaks_is_made_once_and_tells_who_lost_the_claim(
    postgres_url: str, loss: Loss
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        now = store.clock.now()
        await store.commit(*(create(Errand(id=id, due=now)) for id in ("mine", "stolen")))
        taken = await store.claim_due(Errand, limit=2, lease_s=60)
        await store.commit(patch(Errand, "stolen", changes={"fence": Increment(1)}))
        settled = {"due": None, "note": "the-one"}
        proxy.sever(loss, when=lambda data: b"the-one" in data)
        outcomes = await store.settle(
            [[patch(Errand, one.key, changes=settled, expect=one.fenced)] for one in taken]
        )
        assert proxy.severed == 1
        told = {one.key: type(outcome) for one, outcome in zip(taken, outcomes, strict=True)}
        assert told == {"mine": Committed, "stolen": LeaseLostError}
        kept = await store.get_many(Errand, ["mine", "stolen"])
        assert [one.doc.note for one in kept if one is not None] == ["the-one", ""]


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_a_patch_whose_link_breaks_is_made_once_and_tells_what_it_found(
    postgres_url: str, loss: Loss
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Receipt(id="the-one")))
        found = await store.get(Receipt, "the-one")
        assert found is not None
        change = patch(Receipt, "the-one", changes={"caller": 7}, expect=found.unchanged)
        proxy.sever(loss, when=lambda data: b"the-one" in data)
        await store.commit(change)  # sent twice, it would find the version that it has written itself
        proxy.sever(loss, when=lambda data: b"the-one" in data)
        with pytest.raises(VersionConflictError):
            await store.commit(change)
        proxy.sever(loss, when=lambda data: b"none" in data)
        with pytest.raises(NotFoundError):
            await store.commit(patch(Receipt, "none", changes={"caller": 7}))
        assert proxy.severed == 3
        kept = await store.get(Receipt, "the-one")
        assert kept is not None
        assert kept.doc.caller == 7


async def test_a_link_that_goes_silent_holds_commits_up_for_seconds_and_not_for_the_time_limit(
    postgres_url: str,
) -> None:
    # The limits of the test are far below the time limit of a statement, which nothing may wait for.
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?timeout_s=600") as store:
        await store.commit(create(Receipt(id="warm")))
        proxy.sever("silence", when=lambda data: b"the-one" in data)
        async with asyncio.timeout(60):
            first = asyncio.create_task(store.commit(create(Receipt(id="the-one"))))
            await asyncio.sleep(0)
            await asyncio.gather(first, *(store.commit(create(Receipt(id=f"late-{n}"))) for n in range(5)))
        assert proxy.severed == 1
        with pytest.raises(AlreadyExistsError):
            await store.commit(create(Receipt(id="the-one")))


async def test_a_link_that_goes_silent_holds_a_reader_up_for_seconds_and_not_for_the_time_limit(
    postgres_url: str,
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?timeout_s=600") as store:
        await store.commit(create(Receipt(id="the-one")))
        await store.get(Receipt, "warm")
        proxy.sever("silence", when=lambda data: b"the-one" in data)
        async with asyncio.timeout(60):
            assert await store.get(Receipt, "the-one") is not None
        assert proxy.severed == 1


async def test_a_server_that_became_read_only_is_called_so_until_it_can_be_written(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.commit(create(Receipt(id="before")))
        setting = f'ALTER DATABASE "{postgres_url.rpartition("/")[2]}" SET default_transaction_read_only'
        await _execute(postgres_url, f"{setting} = on")
        await kill_backends(postgres_url)
        with pytest.raises(HoldfastError, match="read-only"):
            # Of a commit under way while its link breaks, a read-only server can't tell the outcome.
            await store.commit(create(Receipt(id="refused")))
        with pytest.raises(StoreUnavailableError, match="PostgreSQL is read-only"):
            await store.commit(create(Receipt(id="refused")))
        assert await store.get(Receipt, "before") is not None
        await _execute(postgres_url, f"BEGIN READ WRITE; {setting} = off; COMMIT")
        await store.commit(create(Receipt(id="after")))
        assert await store.get(Receipt, "refused") is None


async def _execute(url: str, text: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(text)
    finally:
        await connection.close()


async def test_a_statement_that_waits_for_a_lock_is_not_taken_for_a_dead_link(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.commit(create(Counter(id="shared")))
        holder = await asyncpg.connect(postgres_url)
        await holder.execute("BEGIN; LOCK TABLE counters")
        change = store.commit(patch(Counter, "shared", changes={"count": Increment(1)}))
        waiting = asyncio.create_task(change)
        await asyncio.wait({waiting}, timeout=2.5 * PROBE_S)
        assert not waiting.done()
        await holder.execute("ROLLBACK")
        await asyncio.wait_for(waiting, 60)
        await holder.close()
        kept = await store.get(Counter, "shared")
        assert kept is not None
        assert kept.doc.count == 1


async def test_a_full_server_that_can_not_be_asked_is_not_taken_for_a_dead_link(
    own_postgres: OwnPostgresServer,
) -> None:
    async with opened(f"{own_postgres.url}?retry_s=0.3") as store:
        await store.commit(create(Counter(id="shared")))
        others = [await asyncpg.connect(own_postgres.url)]
        await others[0].execute("BEGIN; LOCK TABLE counters")
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            while True:
                others.append(await asyncpg.connect(own_postgres.url))
        change = store.commit(patch(Counter, "shared", changes={"count": Increment(1)}))
        waiting = asyncio.create_task(change)
        # A connection that is given up can't be replaced here, and the outcome would be unknown.
        await asyncio.wait({waiting}, timeout=2.5 * PROBE_S)
        early = waiting.done()
        for connection in others:
            connection.terminate()
        assert not early
        await asyncio.wait_for(waiting, 60)


async def test_when_even_asking_is_impossible_the_caller_is_told_to_read_before_repeating(
    postgres_url: str,
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?retry_s=0.3") as store:
        await store.commit(create(Receipt(id="warm")))
        proxy.sever("answer", when=lambda data: b"the-one" in data, for_good=True)
        with pytest.raises(OutcomeUnknownError):
            await store.commit(create(Receipt(id="the-one")))
        proxy.mend()
        assert await store.get(Receipt, "the-one") is not None
        await store.commit(create(Receipt(id="next")))


async def test_a_statement_past_the_time_limit_is_ended_and_nothing_of_it_is_left(postgres_url: str) -> None:
    async with opened(f"{postgres_url}?timeout_s=0.5&retry_s=0.2") as store:
        await store.commit(create(Receipt(id="warm")))
        holder = await asyncpg.connect(postgres_url)
        await holder.execute("BEGIN; LOCK TABLE receipts")
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailableError):
                await store.commit(create(Receipt(id="late")))
            with pytest.raises(StoreUnavailableError):
                await store.get(Receipt, "warm")
        await holder.execute("ROLLBACK")
        await holder.close()
        assert await store.get(Receipt, "late") is None
        await store.commit(create(Receipt(id="late")))


async def test_a_caller_cancelled_during_its_patch_leaves_a_state_that_later_commits_can_rely_on(
    postgres_url: str,
) -> None:
    async with opened(f"{postgres_url}?writers=1") as store:
        await store.commit(create(Receipt(id="the-one", caller=1)))
        holder = await asyncpg.connect(postgres_url)
        await holder.execute("BEGIN; LOCK TABLE receipts")
        lone = asyncio.create_task(store.commit(patch(Receipt, "the-one", changes={"caller": 2})))
        await asyncio.sleep(0)
        behind = asyncio.create_task(store.commit(create(Receipt(id="behind"))))
        await asyncio.sleep(0)
        lone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lone
        await holder.execute("ROLLBACK")
        await behind
        # Made or not, it is decided by now: no statement under way replaces this patch.
        await store.commit(patch(Receipt, "the-one", changes={"caller": 3}))
        await store.commit(create(Receipt(id="after")))
        kept = await store.get(Receipt, "the-one")
        assert kept is not None
        assert kept.doc.caller == 3
        await holder.close()


async def test_a_caller_cancelled_during_its_create_leaves_a_state_that_later_commits_can_rely_on(
    postgres_url: str,
) -> None:
    async with opened(f"{postgres_url}?writers=1") as store:
        await store.commit(create(Receipt(id="warm")))
        holder = await asyncpg.connect(postgres_url)
        for locked in (True, False):
            if locked:
                await holder.execute("BEGIN; LOCK TABLE receipts")
            lone = asyncio.create_task(store.commit(create(Receipt(id="the-one"))))
            await asyncio.sleep(0)
            behind = [
                asyncio.create_task(store.commit(create(Receipt(id=f"b{locked}{n}")))) for n in range(3)
            ]
            await asyncio.sleep(0)
            lone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await lone
            if locked:
                await holder.execute("ROLLBACK")
            await asyncio.gather(*behind)
            # Made or not, it is decided by now: no statement under way makes it after this delete.
            await store.commit(delete(Receipt, "the-one"))
            await store.commit(create(Receipt(id=f"after{locked}")))
            assert await store.get(Receipt, "the-one") is None
        await holder.close()


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_a_lone_create_of_a_taken_id_stays_refused_when_its_link_breaks(
    postgres_url: str, loss: Loss
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Receipt(id="warm")))
        await store.commit(create(Receipt(id="the-one", caller=1)))
        proxy.sever(loss, when=lambda data: b"the-one" in data)
        with pytest.raises(AlreadyExistsError):
            await store.commit(create(Receipt(id="the-one", caller=2)))
        assert proxy.severed == 1
        kept = await store.get(Receipt, "the-one")
        assert kept is not None
        assert kept.doc.caller == 1


@pytest.mark.parametrize("loss", ["request", "answer"])
async def test_a_lone_patch_whose_link_breaks_is_made_once(postgres_url: str, loss: Loss) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Receipt(id="the-one", caller=1)))
        before = await store.get(Receipt, "the-one")
        assert before is not None
        change = patch(Receipt, "the-one", changes={"caller": 2}, expect=before.unchanged)
        proxy.sever(loss, when=lambda data: b"the-one" in data)
        made = await store.commit(change)
        assert proxy.severed == 1
        # Had it been made before the link broke and then decided again, it would have conflicted with itself.
        after = await store.get(Receipt, "the-one")
        assert after is not None
        assert (after.doc.caller, after.version) == (2, made.versions[0])
        with pytest.raises(VersionConflictError):
            await store.commit(change)


async def test_callers_behind_a_lone_create_whose_link_breaks_are_served(postgres_url: str) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?writers=1") as store:
        await store.commit(create(Receipt(id="warm")))
        proxy.sever("answer", when=lambda data: b"the-one" in data)
        names = ["the-one", *(f"behind-{n}" for n in range(5))]
        await asyncio.gather(*(store.commit(create(Receipt(id=name))) for name in names))
        assert proxy.severed == 1
        assert None not in await store.get_many(Receipt, names)


async def test_a_caller_cancelled_on_a_silent_link_holds_later_commits_up_for_seconds(
    postgres_url: str,
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url), opened(f"{url}?timeout_s=600") as store:
        await store.commit(create(Receipt(id="warm")))
        proxy.sever("silence", when=lambda data: b"the-one" in data)
        lone = asyncio.create_task(store.commit(create(Receipt(id="the-one"))))
        await until(lambda: proxy.severed == 1)
        lone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lone
        async with asyncio.timeout(60):
            await store.commit(create(Receipt(id="next")))


async def test_closing_waits_for_a_lone_create(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        await store.commit(create(Receipt(id="warm")))
        lone = asyncio.create_task(store.commit(create(Receipt(id="the-one"))))
        await asyncio.sleep(0)
        await store.close()
        assert isinstance(await lone, Committed)
