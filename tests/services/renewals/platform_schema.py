"""Somebody's platform: a PostgreSQL schema with real types that we may only read."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from holdfast.app import open_store
from holdfast.clock import Clock
from holdfast.kit.leases import LeaseDocument
from holdfast.model import Document, schema_of
from holdfast.services.renewals.models import DOCUMENTS, TABLES
from holdfast.store import Query, Store

Link: TypeAlias = "asyncpg.Connection[Any]"
# With what must be escaped in a URL, and must never be shown.
PASSWORD: Final = "se/cr?et@#word"
KEPT: Final[list[type[Document]]] = [*DOCUMENTS, LeaseDocument]
GATE: Final = 4_711

_TABLES: Final = """
CREATE SCHEMA rop;
CREATE TYPE rop.unit_status AS ENUM ('available', 'occupied', 'pending_move_out');
CREATE TYPE rop.resident_status AS ENUM ('active', 'notice_given', 'moved_out');
CREATE TABLE rop.properties (
    id uuid PRIMARY KEY, name varchar(255) NOT NULL UNIQUE, address text, city text, state char(2),
    zip_code char(10), status text NOT NULL DEFAULT 'active', units_planned int,
    created_at timestamptz NOT NULL DEFAULT '2026-01-02 03:04:05.5+02', updated_at timestamptz);
CREATE TABLE rop.unit_types (
    id uuid PRIMARY KEY, property_id uuid NOT NULL REFERENCES rop.properties, name text NOT NULL,
    bedrooms int NOT NULL, bathrooms numeric(3, 1) NOT NULL, square_footage int);
CREATE TABLE rop.units (
    id uuid PRIMARY KEY, property_id uuid NOT NULL REFERENCES rop.properties,
    unit_type_id uuid REFERENCES rop.unit_types, unit_number text NOT NULL, floor smallint,
    status rop.unit_status NOT NULL DEFAULT 'available');
CREATE TABLE rop.unit_pricing (
    id uuid PRIMARY KEY, unit_id uuid NOT NULL REFERENCES rop.units, base_rent numeric(10, 2) NOT NULL,
    market_rent numeric NOT NULL, effective_date date NOT NULL, created_at timestamp,
    UNIQUE (unit_id, effective_date));
CREATE TABLE rop.residents (
    id uuid PRIMARY KEY, property_id uuid NOT NULL REFERENCES rop.properties, unit_id uuid NOT NULL,
    first_name text NOT NULL, last_name text NOT NULL, email text, phone text,
    status rop.resident_status NOT NULL DEFAULT 'active', move_in_date date, move_out_date date);
CREATE TABLE rop.leases (
    id uuid PRIMARY KEY, property_id uuid NOT NULL REFERENCES rop.properties, resident_id uuid NOT NULL,
    unit_id uuid, lease_start_date date NOT NULL, lease_end_date date, monthly_rent numeric(12, 4) NOT NULL,
    lease_type text NOT NULL DEFAULT 'fixed', status text NOT NULL DEFAULT 'active');
CREATE TABLE rop.resident_ledger (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, property_id uuid NOT NULL, resident_id uuid NOT NULL,
    transaction_type text NOT NULL, charge_code text, amount numeric NOT NULL,
    transaction_date date NOT NULL);
CREATE TABLE rop.renewal_offers (
    id uuid PRIMARY KEY, property_id uuid NOT NULL, resident_id uuid NOT NULL, lease_id uuid NOT NULL,
    proposed_rent numeric(10, 2), offer_expiration_date date, status text NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL);
CREATE FUNCTION rop.id_of(kind text, n int) RETURNS uuid LANGUAGE sql IMMUTABLE
    RETURN md5(kind || '-' || n)::uuid;
"""
_ROWS: Final = """
INSERT INTO rop.properties (id, name, city, state, zip_code)
    SELECT rop.id_of('property', n), 'House, "' || n || '"', E'Łódź\\n№ ' || n, 'IL', '62701'
    FROM generate_series(1, $2) n;
INSERT INTO rop.unit_types SELECT rop.id_of('type', n), rop.id_of('property', n), 'Two rooms', 1, 1.5, 640
    FROM generate_series(1, $2) n;
INSERT INTO rop.units (id, property_id, unit_type_id, unit_number, floor, status)
    SELECT rop.id_of('unit', n), rop.id_of('property', 1 + n % $2), rop.id_of('type', 1 + n % $2), n, n % 9,
    'occupied' FROM generate_series(1, $1) n;
INSERT INTO rop.unit_pricing (id, unit_id, base_rent, market_rent, effective_date)
    SELECT rop.id_of('price', n), rop.id_of('unit', n), 1400, 1600.10, '2026-01-01'
    FROM generate_series(1, $1) n;
INSERT INTO rop.residents (id, property_id, unit_id, first_name, last_name, email, move_in_date)
    SELECT rop.id_of('resident', n), rop.id_of('property', 1 + n % $2), rop.id_of('unit', n), 'Ada',
    'Kim ' || n, 'r' || n || '@example.com', '2024-02-29' FROM generate_series(1, $1) n;
INSERT INTO rop.leases (id, property_id, resident_id, unit_id, lease_start_date, lease_end_date, monthly_rent)
    SELECT rop.id_of('lease', n), rop.id_of('property', 1 + n % $2), rop.id_of('resident', n),
    rop.id_of('unit', n), '2025-03-01', '2026-04-15', 1400.1 FROM generate_series(1, $1) n;
INSERT INTO rop.resident_ledger
    (property_id, resident_id, transaction_type, charge_code, amount, transaction_date)
    SELECT rop.id_of('property', 1 + n % $2), rop.id_of('resident', n), 'payment', 'rent', 1400.10,
    date '2026-03-01' - 30 * m FROM generate_series(1, $1) n, generate_series(1, 6) m;
INSERT INTO rop.renewal_offers (id, property_id, resident_id, lease_id, proposed_rent, created_at)
    SELECT rop.id_of('offer', n), rop.id_of('property', 1 + n % $2), rop.id_of('resident', n),
    rop.id_of('lease', n), 1450, '2026-02-01 10:00+00' FROM generate_series(1, $1) n WHERE n % 5 < 2;
"""
# Reading the last table waits for the gate, so that a test can do something in the middle of an import.
_GATED: Final = f"""
ALTER TABLE rop.renewal_offers RENAME TO offers_kept;
CREATE FUNCTION rop.pass_gate() RETURNS bool LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN true; END';
CREATE VIEW rop.renewal_offers AS SELECT * FROM rop.offers_kept WHERE rop.pass_gate();
GRANT SELECT ON ALL TABLES IN SCHEMA rop TO PUBLIC;
"""


def id_of(kind: str, number: int) -> str:
    return str(uuid.UUID(hashlib.md5(f"{kind}-{number}".encode()).hexdigest()))


@dataclass
class Platform:
    """`url` is a reader's, who may look and nothing else; `owner` is a link that may do anything."""

    url: str
    owner: Link
    owner_url: str
    address: str

    async def fill(self, residents: int, *, properties: int = 2) -> None:
        for statement in filter(str.strip, _ROWS.split(";\n")):
            text = statement.replace("$1", str(residents)).replace("$2", str(properties))
            await self.owner.execute(text)
        await self.owner.execute("ANALYZE")

    async def contents(self) -> dict[str, list[str]]:
        """Every row with the transaction that wrote it, and every object of the schema."""
        found = {}
        for table in TABLES:
            rows = await self.owner.fetch(f"SELECT t::text || t.xmin::text FROM rop.{table} t ORDER BY 1")
            found[table] = [row[0] for row in rows]
        objects = "SELECT relname::text || relkind::text FROM pg_class ORDER BY 1"
        found["objects"] = [row[0] for row in await self.owner.fetch(objects)]
        return found

    async def gate(self) -> None:
        """Let reading wait in front of the last table while somebody holds the gate."""
        await self.owner.execute(_GATED)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        await self.owner.execute(f"SELECT pg_advisory_lock({GATE})")
        try:
            yield
        finally:
            await self.owner.execute(f"SELECT pg_advisory_unlock({GATE})")

    async def waiting_reader(self) -> int:
        """The process of a reader that waits at the gate."""
        question = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast renewals'"
            " AND datname = current_database() AND wait_event_type = 'Lock'"
        )
        async with asyncio.timeout(30):
            while (pid := await self.owner.fetchval(question)) is None:
                await self.owner.execute("SELECT pg_sleep(0.01)")
        return int(pid)


@contextlib.asynccontextmanager
async def platform(database_url: str) -> AsyncIterator[Platform]:
    """An empty platform in this database, with a reader of its own."""
    reader = f"reader_{secrets.token_hex(4)}"
    owner: Link = await asyncpg.connect(database_url)
    try:
        await owner.execute(_TABLES)
        await owner.execute(f"CREATE ROLE {reader} LOGIN PASSWORD '{PASSWORD}'")
        await owner.execute(f"GRANT USAGE ON SCHEMA rop TO {reader}")
        await owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA rop TO {reader}")
        parts = urlsplit(database_url)
        place = f"{parts.hostname}:{parts.port}"
        netloc = f"{reader}:{quote(PASSWORD, safe='')}@{place}"
        url = urlunsplit(parts._replace(netloc=netloc, query="schema=rop"))
        yield Platform(url, owner, database_url, f"{place}{parts.path}")
    finally:
        await owner.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}")
        await owner.close()


@contextlib.asynccontextmanager
async def kept_in(url: str, clock: Clock | None = None) -> AsyncIterator[Store]:
    """A store of the given tables, with every tenant's reach."""
    store = await open_store(url, KEPT, clock=clock)
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


async def everything(store: Store) -> dict[str, Document]:
    """All given rows of the portfolio, by table and id, each with its version."""
    found = {}
    for table, cls in TABLES.items():
        fields = [field.column.path for field in schema_of(cls).indexes[0].fields]
        async for item in store.scan(Query(cls).order_by(*fields).limit(500)):
            found[f"{table}/{item.key}@{item.version}"] = item.doc
    return found
