"""Scoring row by row, as a first version is often written: an ORM, a few queries and a commit per resident.

On the tables of `bare_renewals`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast.clock import to_us
from holdfast.services.renewals.domain.dates import months_before
from holdfast.services.renewals.domain.scoring import Facts, LeaseFacts, LedgerTotals, Rules, assess


class Table(DeclarativeBase):
    pass


class ResidentRow(Table):
    __tablename__ = "residents"
    id: Mapped[str] = mapped_column(primary_key=True)
    property_id: Mapped[str]
    unit_id: Mapped[str]
    first_name: Mapped[str]
    last_name: Mapped[str]
    status: Mapped[str]


class LeaseRow(Table):
    __tablename__ = "leases"
    id: Mapped[str] = mapped_column(primary_key=True)
    resident_id: Mapped[str]
    starts: Mapped[str]
    ends: Mapped[str | None]
    rent: Mapped[int] = mapped_column(BigInteger)
    type: Mapped[str]
    status: Mapped[str]


class LedgerRow(Table):
    __tablename__ = "ledger"
    id: Mapped[str] = mapped_column(primary_key=True)
    property_id: Mapped[str]
    resident_id: Mapped[str]
    kind: Mapped[str]
    code: Mapped[str]
    amount: Mapped[int] = mapped_column(BigInteger)
    day: Mapped[str]


class PriceRow(Table):
    __tablename__ = "pricing"
    unit_id: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[str] = mapped_column(primary_key=True)
    market_rent: Mapped[int] = mapped_column(BigInteger)


class OfferRow(Table):
    __tablename__ = "offers"
    id: Mapped[str] = mapped_column(primary_key=True)
    lease_id: Mapped[str]
    status: Mapped[str]
    made: Mapped[str]
    expires: Mapped[str]


class ScoreRow(Table):
    __tablename__ = "scores"
    resident_id: Mapped[str] = mapped_column(primary_key=True)
    calculated_at: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    property_id: Mapped[str]
    lease_id: Mapped[str]
    risk_score: Mapped[int] = mapped_column(BigInteger)
    risk_tier: Mapped[str]
    days_to_expiry: Mapped[int | None] = mapped_column(BigInteger)
    signals: Mapped[str]


def questions(resident: ResidentRow, as_of: date) -> dict[str, Callable[..., Any]]:
    """The queries for one resident, by name; a lease's offers need the lease first."""
    since, until = months_before(as_of, 6).isoformat(), as_of.isoformat()
    return {
        "lease": lambda: select(LeaseRow).where(
            LeaseRow.resident_id == resident.id, LeaseRow.status == "active"
        ),
        "ledger": lambda: select(LedgerRow).where(
            LedgerRow.property_id == resident.property_id, LedgerRow.resident_id == resident.id,
            LedgerRow.day >= since, LedgerRow.day <= until,
        ),
        "price": lambda: select(PriceRow).where(PriceRow.unit_id == resident.unit_id, PriceRow.day <= until)
        .order_by(PriceRow.day.desc()).limit(1),
        "offers": lambda lease_id: select(OfferRow).where(OfferRow.lease_id == lease_id),
    }  # fmt: skip


def score_of(
    resident: ResidentRow, lease: LeaseRow, rows: Any, *, price: Any, offers: Any, as_of: date, at: datetime
) -> ScoreRow:
    ledger, today = LedgerTotals(), as_of.isoformat()
    for row in rows:
        ledger.add(row.kind, row.code, rows=1, cents=row.amount)
    offered = any(
        o.made >= lease.starts and o.made <= today and
        (o.status == "accepted" or (o.status == "pending" and o.expires >= today))
        for o in offers
    )  # fmt: skip
    ends = None if lease.ends is None else date.fromisoformat(lease.ends)
    kind: Any = lease.type
    known = LeaseFacts(lease.id, date.fromisoformat(lease.starts), ends, lease.rent, kind)
    market = None if price is None else price.market_rent
    found = assess(Facts(known, ledger, offered, market), as_of=as_of, rules=Rules())
    return ScoreRow(
        resident_id=resident.id, calculated_at=to_us(at), property_id=resident.property_id,
        lease_id=lease.id, risk_score=found.score, risk_tier=found.tier, days_to_expiry=found.days_to_expiry,
        signals=msgspec.json.encode(found.signals).decode(),
    )  # fmt: skip


def run(session: Session, property_id: str, as_of: date, *, at: datetime, residents: int) -> int:
    """Score some residents, one after another."""
    wanted = select(ResidentRow.id).where(ResidentRow.property_id == property_id).limit(residents)
    ids = list(session.scalars(wanted))
    for n, id in enumerate(ids):
        resident = session.get_one(ResidentRow, id)
        ask = questions(resident, as_of)
        lease = session.scalars(ask["lease"]()).first()
        assert lease is not None
        rows = session.scalars(ask["ledger"]()).all()
        price = session.scalars(ask["price"]()).first()
        offers = session.scalars(ask["offers"](lease.id)).all()
        moment = at + timedelta(microseconds=n)
        session.add(score_of(resident, lease, rows, price=price, offers=offers, as_of=as_of, at=moment))
        session.commit()
    return len(ids)


async def run_async(
    session: AsyncSession, property_id: str, as_of: date, *, at: datetime, residents: int
) -> int:
    """The same with an asynchronous driver."""
    wanted = select(ResidentRow.id).where(ResidentRow.property_id == property_id).limit(residents)
    ids = list(await session.scalars(wanted))
    for n, id in enumerate(ids):
        resident = await session.get_one(ResidentRow, id)
        ask = questions(resident, as_of)
        lease = (await session.scalars(ask["lease"]())).first()
        assert lease is not None
        rows = (await session.scalars(ask["ledger"]())).all()
        price = (await session.scalars(ask["price"]())).first()
        offers = (await session.scalars(ask["offers"](lease.id))).all()
        moment = at + timedelta(microseconds=n)
        session.add(score_of(resident, lease, rows, price=price, offers=offers, as_of=as_of, at=moment))
        await session.commit()
    return len(ids)
