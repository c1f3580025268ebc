"""Metering by an ORM in two ways, with mapped classes and a session for each batch.

`record` does what SQLAlchemy's documentation recommends for many rows at once: the facts that are stored are
looked up, the others inserted by "ORM bulk insert", and the sums changed by "ORM bulk update by primary key".
The sums are locked until the commit, and a batch that another one forestalled is recorded again.

`record_by_upserts` does what the same documentation shows for rows of which some may exist ("ORM upsert
statements"): the rows are given to `insert().values()`, once for the ledger and once for the sums. Such a
statement is as long as its rows and compiled for each batch, which takes most of its time.

Both make one transaction of a batch; a fact counts once and sums are exact, whoever else records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

ATTEMPTS = 10


class Table(DeclarativeBase):
    pass


class LedgerRow(Table):
    __tablename__ = "ledger"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    fact: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    metric: Mapped[str]
    value: Mapped[int] = mapped_column(BigInteger)


class SumRow(Table):
    __tablename__ = "sums"
    tenant: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int] = mapped_column(BigInteger)


async def open_sessions(url: str) -> AsyncIterator[async_sessionmaker[AsyncSession]]:
    """Yield the sessions of a database with these tables; on SQLite with the write-ahead log."""
    on_sqlite = url.startswith("sqlite")
    path = url.partition("?")[0].removeprefix("sqlite:///")
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}" if on_sqlite else url.replace("postgresql", "postgresql+asyncpg", 1)
    )
    if on_sqlite:
        async with engine.connect() as link:
            # The file keeps the journal's mode; each commit is synced, as every connection does by default.
            await link.exec_driver_sql("PRAGMA journal_mode = WAL")
    async with engine.begin() as link:
        await link.run_sync(Table.metadata.create_all)
    yield async_sessionmaker(engine, expire_on_commit=False)
    await engine.dispose()


async def record(
    sessions: async_sessionmaker[AsyncSession], facts: Sequence[tuple[str, str]], *, at: datetime
) -> int:
    """Count the facts that are not counted yet, given by tenant and name; return how many."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            async with sessions.begin() as session:
                return await _record(session, facts, at)
        except IntegrityError:  # another recorded one of them, or a tenant's first fact, since the look-up
            if attempt == ATTEMPTS:
                raise
    raise AssertionError


async def _record(session: AsyncSession, facts: Sequence[tuple[str, str]], at: datetime) -> int:
    given = dict.fromkeys(facts)
    stored = select(LedgerRow.tenant, LedgerRow.fact)
    stored = stored.where(tuple_(LedgerRow.tenant, LedgerRow.fact).in_(list(given)))
    known = {(tenant, name) for tenant, name in await session.execute(stored)}
    new = [one for one in given if one not in known]
    if not new:
        return 0
    rows = [{"tenant": tenant, "fact": name, "at": at, "metric": "calls", "value": 1} for tenant, name in new]
    await session.execute(insert(LedgerRow), rows)
    await _add(session, Counter(tenant for tenant, _ in new), day=at.date().isoformat())
    return len(new)


async def _add(session: AsyncSession, counts: Counter[str], *, day: str) -> None:
    # Locked in one order, so that two batches never wait for each other; SQLite locks the file by then.
    sums = select(SumRow.tenant, SumRow.value).where(
        SumRow.metric == "calls", SumRow.day == day, SumRow.tenant.in_(list(counts))
    )
    locked = await session.execute(sums.order_by(SumRow.tenant).with_for_update())
    before = {row.tenant: row.value for row in locked}
    first: list[dict[str, Any]] = []
    more: list[dict[str, Any]] = []
    for tenant, count in counts.items():
        row = {"tenant": tenant, "metric": "calls", "day": day, "value": before.get(tenant, 0) + count}
        (more if tenant in before else first).append(row)
    if more:
        await session.execute(update(SumRow), more)
    if first:
        await session.execute(insert(SumRow), first)


async def record_by_upserts(
    sessions: async_sessionmaker[AsyncSession], facts: Sequence[tuple[str, str]], *, at: datetime
) -> int:
    """Count the facts that are not counted yet, given by tenant and name; return how many."""
    # Locked in one order, so that two batches never wait for each other.
    rows = [
        {"tenant": tenant, "fact": name, "at": at, "metric": "calls", "value": 1}
        for tenant, name in sorted(set(facts))
    ]
    async with sessions.begin() as session:
        upsert = _UPSERTS[session.get_bind().dialect.name]
        keep = upsert(LedgerRow).values(rows).on_conflict_do_nothing().returning(LedgerRow.tenant)
        new = Counter(await session.scalars(keep))
        if not new:
            return 0
        day = at.date().isoformat()
        add = upsert(SumRow).values(
            [{"tenant": one, "metric": "calls", "day": day, "value": n} for one, n in sorted(new.items())]
        )
        add = add.on_conflict_do_update(
            index_elements=[SumRow.tenant, SumRow.metric, SumRow.day],
            set_={"value": SumRow.value + add.excluded.value},
        )
        await session.execute(add)
    return new.total()


_UPSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
