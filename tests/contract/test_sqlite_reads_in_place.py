"""SQLite reads by the connection that writes while it is idle, whose cache its own commits leave as it is."""

from __future__ import annotations

import asyncio
import threading

import apsw
import pytest

from holdfast.store import Query, Store, create, patch
from holdfast.store.sqlite import SqliteEngine
from holdfast.store.sqlite.write_transaction import WriteTransaction
from tests.faults.models import ALL, Counter
from tests.faults.store_opener import opener

CHANGE = """UPDATE counters SET _body = '{"id":"one","value":7}'"""

opened = opener(ALL, migrate=True)


def engine_of(store: Store) -> SqliteEngine:
    assert isinstance(store.engine, SqliteEngine)
    return store.engine


async def value(store: Store) -> int:
    """The counter's value, read by its key, by a query and with others."""
    found = await store.get(Counter, "one")
    assert found is not None
    page = await store.query(Query(Counter))
    several = await store.get_many(Counter, ["one", "none"])
    assert several[0] is not None
    assert found.doc.value == page.items[0].doc.value == several[0].doc.value
    return found.doc.value


async def test_a_read_after_commits_of_this_process_reads_no_page_again(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await store.commit(create(Counter(id="one")))
        driver = engine_of(store)._writer.connection.driver
        for n in range(5):
            await store.commit(patch(Counter, "one", changes={"value": n}))
            driver.status(apsw.SQLITE_DBSTATUS_CACHE_HIT, True)
            driver.status(apsw.SQLITE_DBSTATUS_CACHE_MISS, True)
            assert await value(store) == n
            assert driver.status(apsw.SQLITE_DBSTATUS_CACHE_HIT)[0] > 0
            assert driver.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0] == 0


async def test_a_read_beside_a_transaction_does_not_wait_and_sees_nothing_of_it(sqlite_url: str) -> None:
    async with opened(sqlite_url) as store:
        await store.commit(create(Counter(id="one")))
        begun, may_end = threading.Event(), threading.Event()

        def change(transaction: WriteTransaction) -> None:
            transaction.connection.execute(CHANGE)
            begun.set()
            may_end.wait(10)

        writing = engine_of(store)._writer.do(change)
        await asyncio.to_thread(begun.wait, 10)
        assert await value(store) == 0
        may_end.set()
        await writing
        assert await value(store) == 7


@pytest.mark.parametrize("ended", ["closed", "failed"])
async def test_reads_go_on_when_the_writer_has_ended(
    sqlite_url: str, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(sqlite_url) as store:
        await store.commit(create(Counter(id="one", value=3)))
        writer = engine_of(store)._writer
        if ended == "closed":
            await writer.close()
        else:
            monkeypatch.setattr(threading, "excepthook", lambda _: None)

            def end(transaction: WriteTransaction) -> None:
                transaction.connection.execute(CHANGE)
                raise SystemExit

            writer.do(end)
            await asyncio.to_thread(writer._thread.join, 10)
        assert await value(store) == 3
