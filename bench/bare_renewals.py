"""Scoring without the platform: plain tables, one question for everybody, one insert for everybody.

Reads the same residents, makes the same scores with the same sentences, keeps them with the unique
constraint and the four indexes of the data model, durably. Nothing else: no history of the run, no
progress, no resuming, no checks of what is written, no tenants.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any, Final

import apsw
import asyncpg
import msgspec

from holdfast.clock import to_us
from holdfast.model import Document
from holdfast.services.renewals.domain.dates import months_before
from holdfast.services.renewals.domain.scoring import (
    Assessment,
    Facts,
    LeaseFacts,
    LedgerTotals,
    Rules,
    assess,
)
from holdfast.services.renewals.models import LeaseRow, LedgerRow, OfferRow, Resident, UnitPricing

_JSON: Final = msgspec.json.Encoder()
TABLES: Final = {
    "residents": ("id TEXT PRIMARY KEY", "property_id TEXT", "unit_id TEXT", "first_name TEXT",
                  "last_name TEXT", "status TEXT"),
    "leases": ("id TEXT PRIMARY KEY", "property_id TEXT", "resident_id TEXT", "starts TEXT", "ends TEXT",
               "rent BIGINT", "type TEXT", "status TEXT"),
    "ledger": ("id TEXT PRIMARY KEY", "property_id TEXT", "resident_id TEXT", "kind TEXT", "code TEXT",
               "amount BIGINT", "day TEXT"),
    "pricing": ("unit_id TEXT", "market_rent BIGINT", "day TEXT"),
    "offers": ("id TEXT PRIMARY KEY", "property_id TEXT", "lease_id TEXT", "status TEXT", "made TEXT",
               "expires TEXT"),
    "scores": ("property_id TEXT", "resident_id TEXT", "lease_id TEXT", "risk_score BIGINT", "risk_tier TEXT",
               "days_to_expiry BIGINT", "signals TEXT", "calculated_at BIGINT"),
}  # fmt: skip
INDEXES: Final = (
    "CREATE INDEX residents_property ON residents (property_id)",
    "CREATE INDEX leases_resident ON leases (resident_id)",
    "CREATE INDEX ledger_resident ON ledger (property_id, resident_id, day, kind, code, amount)",
    "CREATE UNIQUE INDEX pricing_unit ON pricing (unit_id, day, market_rent)",
    "CREATE INDEX offers_lease ON offers (lease_id)",
    "CREATE UNIQUE INDEX scores_once ON scores (resident_id, calculated_at)",
    "CREATE INDEX scores_property ON scores (property_id)",
    "CREATE INDEX scores_resident ON scores (resident_id)",
    "CREATE INDEX scores_tier ON scores (risk_tier)",
    "CREATE INDEX scores_at ON scores (calculated_at)",
)
# $1 property, $2 window's first day, $3 as-of date.
READ: Final = """
SELECT r.id, r.unit_id, l.id, l.starts, l.ends, l.rent, l.type,
       coalesce(g.rows, 0), coalesce(g.charged, 0), coalesce(g.charges, 0), coalesce(g.payments, 0),
       coalesce(g.paid, 0), coalesce(g.fees, 0),
       (SELECT p.market_rent FROM pricing p WHERE p.unit_id = r.unit_id AND p.day <= $3
         ORDER BY p.day DESC LIMIT 1),
       EXISTS (SELECT 1 FROM offers o WHERE o.lease_id = l.id AND o.status IN ('pending', 'accepted')
         AND o.made >= l.starts AND o.made <= $3 AND (o.status = 'accepted' OR o.expires >= $3))
FROM residents r
JOIN leases l ON l.resident_id = r.id AND l.status = 'active'
LEFT JOIN (
  SELECT resident_id, count(*) AS rows,
         sum(CASE WHEN kind = 'charge' AND code = 'rent' THEN amount ELSE 0 END) AS charged,
         sum(CASE WHEN kind = 'charge' AND code = 'rent' THEN 1 ELSE 0 END) AS charges,
         sum(CASE WHEN kind = 'payment' THEN 1 ELSE 0 END) AS payments,
         sum(CASE WHEN kind = 'payment' AND code IN ('rent', '') THEN amount ELSE 0 END) AS paid,
         sum(CASE WHEN kind = 'charge' AND code = 'late_fee' THEN amount ELSE 0 END) AS fees
  FROM ledger WHERE property_id = $1 AND day >= $2 AND day <= $3 GROUP BY resident_id
) g ON g.resident_id = r.id
WHERE r.property_id = $1 AND r.status IN ('active', 'notice_given')
"""


def statements() -> Iterator[str]:
    for name, columns in TABLES.items():
        yield f"CREATE TABLE {name} ({', '.join(columns)})"


def plain_row(document: Document) -> tuple[str, tuple[Any, ...]] | None:
    """The table of a sampled document, and its row."""
    if isinstance(document, Resident):
        d = document
        return "residents", (d.id, d.property_id, d.unit_id, d.first_name, d.last_name, d.status)
    if isinstance(document, LeaseRow):
        ends = document.lease_end_date and document.lease_end_date.isoformat()
        return "leases", (document.id, document.property_id, document.resident_id,
                          document.lease_start_date.isoformat(), ends, document.monthly_rent_cents,
                          document.lease_type, document.status)  # fmt: skip
    if isinstance(document, LedgerRow):
        return "ledger", (document.id, document.property_id, document.resident_id, document.transaction_type,
                          document.charge_code, document.amount_cents,
                          document.transaction_date.isoformat())  # fmt: skip
    if isinstance(document, UnitPricing):
        return "pricing", (document.unit_id, document.market_rent_cents, document.effective_date.isoformat())
    if isinstance(document, OfferRow):
        assert document.created_at is not None
        assert document.offer_expiration_date is not None
        return "offers", (document.id, document.property_id, document.lease_id, document.status,
                          document.created_at.date().isoformat(),
                          document.offer_expiration_date.isoformat())  # fmt: skip
    return None


def scored(rows: Iterable[Sequence[Any]], property_id: str, as_of: date, at: int) -> list[tuple[Any, ...]]:
    """The scores of the query's rows, as rows."""
    rules, made = Rules(), []
    for row in rows:
        ends = None if row[4] is None else date.fromisoformat(row[4])
        lease = LeaseFacts(row[2], date.fromisoformat(row[3]), ends, row[5], row[6])
        facts = Facts(lease, LedgerTotals(*map(int, row[7:13])), bool(row[14]), row[13])
        found: Assessment = assess(facts, as_of=as_of, rules=rules)
        made.append((property_id, row[0], row[2], found.score, found.tier, found.days_to_expiry,
                     _JSON.encode(found.signals).decode(), at))  # fmt: skip
    return made


def run_on_sqlite(link: apsw.Connection, property_id: str, as_of: date, *, at: datetime) -> int:
    window = months_before(as_of, 6).isoformat(), as_of.isoformat()
    question = READ.replace("$1", "?1").replace("$2", "?2").replace("$3", "?3")
    made = scored(link.execute(question, (property_id, *window)), property_id, as_of, to_us(at))
    with link:
        link.executemany("INSERT INTO scores VALUES (?, ?, ?, ?, ?, ?, ?, ?)", made)
    return len(made)


async def run_on_postgres(link: Any, property_id: str, as_of: date, *, at: datetime) -> int:
    window = months_before(as_of, 6).isoformat(), as_of.isoformat()
    rows = await link.fetch(READ, property_id, *window)
    made = scored(rows, property_id, as_of, to_us(at))
    await link.copy_records_to_table("scores", records=made)
    return len(made)


def open_sqlite(path: str) -> apsw.Connection:
    link = apsw.Connection(path)
    link.execute("PRAGMA journal_mode = WAL")
    link.execute("PRAGMA synchronous = FULL")
    link.execute("PRAGMA cache_size = -65536")
    link.execute("PRAGMA mmap_size = 268435456")
    return link


async def open_postgres(url: str) -> Any:
    return await asyncpg.connect(url)
