"""The service over a real socket with its loops, a simulated RMS, and four residents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import aiohttp
import uvicorn

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.http.app import create_app
from holdfast.kit.access import ApiTokens
from holdfast.kit.runs import Runner
from holdfast.model import Document
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.operations import endpoints
from holdfast.operations.endpoints import EndpointRow, NewEndpoint
from holdfast.runtime import Runtime
from holdfast.services.renewals import service
from holdfast.services.renewals.domain.dates import months_before
from holdfast.services.renewals.domain.money import amount_of
from holdfast.services.renewals.models import (
    JOBS,
    LeaseRow,
    LedgerRow,
    OfferRow,
    Property,
    Resident,
    Unit,
    UnitPricing,
)
from holdfast.services.renewals.operations import Renewals
from holdfast.simulators.rms import Behave, RmsSimulator
from holdfast.store import Store, create
from tests.serving import served

AS_OF: Final = date(2026, 3, 1)
TENANT: Final = "-"
P: Final = "p-1"
ROOT: Final = "/renewals/api/v1"
ENDPOINTS: Final = "/api/v1/endpoints/renewals"


@dataclass
class Person:
    """A resident as a test describes them; amounts are in whole dollars."""

    name: str
    days: int | None
    rent: int
    payments: Sequence[int] = (1, 2, 3, 4, 5, 6)
    offer: bool = False
    status: Literal["active", "notice_given", "moved_out"] = "active"
    market: int | None = 1_600

    def documents(self, property_id: str, as_of: date) -> list[Document]:
        id, cents = self.name.lower(), self.rent * 100
        made: list[Document] = [
            Unit(id=f"unit-{id}", property_id=property_id, unit_number=id),
            Resident(
                id=id, property_id=property_id, unit_id=f"unit-{id}", first_name=self.name,
                last_name="Example", status=self.status,
            ),
            LeaseRow(
                id=f"lease-{id}", property_id=property_id, resident_id=id, unit_id=f"unit-{id}",
                lease_start_date=months_before(as_of, 12), monthly_rent=amount_of(cents),
                lease_end_date=None if self.days is None else as_of + timedelta(days=self.days),
                lease_type="month_to_month" if self.days is None else "fixed",
            ),
        ]  # fmt: skip
        if self.market is not None:
            made.append(UnitPricing(
                id=f"price-{id}", property_id=property_id, unit_id=f"unit-{id}", base_rent=amount_of(cents),
                market_rent=amount_of(self.market * 100), effective_date=months_before(as_of, 3),
            ))  # fmt: skip
        made += [self._paid(property_id, months_before(as_of, months)) for months in self.payments]
        if self.offer:
            made.append(OfferRow(
                id=f"offer-{id}", property_id=property_id, resident_id=id, lease_id=f"lease-{id}",
                created_at=datetime.combine(as_of - timedelta(days=10), time(12), UTC),
            ))  # fmt: skip
        return made

    def _paid(self, property_id: str, day: date) -> LedgerRow:
        id = self.name.lower()
        return LedgerRow(
            id=f"paid-{id}-{day}", property_id=property_id, resident_id=id, amount=amount_of(self.rent * 100),
            transaction_type="payment", charge_code="rent", transaction_date=day,
        )  # fmt: skip


REFERENCE: Final = (
    Person("Jane", 45, 1_400),
    Person("John", 60, 1_500, payments=(2, 3, 4, 5, 6)),
    Person("Alice", 180, 1_600, offer=True),
    Person("Bob", None, 1_450),
)


async def settle_in(
    store: Store, people: Sequence[Person] = REFERENCE, *, property_id: str = P, as_of: date = AS_OF
) -> None:
    """A property with these residents."""
    documents: list[Document] = [Property(id=property_id, name=f"House {property_id}", time_zone="UTC")]
    for person in people:
        documents += person.documents(property_id, as_of)
    for start in range(0, len(documents), 400):
        await store.commit(*(create(one) for one in documents[start : start + 400]))


@dataclass
class Server:
    """A served runtime, a client with an admin token, and the RMS."""

    runtime: Runtime
    client: aiohttp.ClientSession
    rms: RmsSimulator
    token: str

    @property
    def renewals(self) -> Renewals:
        operations: Renewals = self.runtime.parts["renewals"].operations
        return operations

    @property
    def store(self) -> Store:
        return self.runtime.store.tenant(TENANT)

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> tuple[int, Any]:
        """Status and JSON of a response; paths are below the service's own, or the platform's `/api/v1`."""
        sent = {"authorization": f"Bearer {self.token}", **(headers or {})}
        url = path if path.startswith("/api/") else ROOT + path
        async with self.client.request(method, url, headers=sent, **more) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str, **more: Any) -> Any:
        status, body = await self.ask("GET", path, **more)
        assert status == 200, body
        return body

    async def post(self, path: str, body: Any = None, *, status: int = 200, **more: Any) -> Any:
        got, answer = await self.ask("POST", path, json=body or {}, **more)
        assert got == status, answer
        return answer

    async def calculate(self, property_id: str = P, as_of: date = AS_OF) -> Any:
        path = f"/properties/{property_id}/renewal-risk/calculate?wait=true"
        return await self.post(path, {"asOfDate": as_of.isoformat()})

    async def endpoint(self, property_id: str = P, **behave: Any) -> None:
        """An endpoint at the RMS, which checks its signatures."""
        made = await self.create_endpoint(property_id, self.rms.webhook_url(property_id))
        self.rms.run(Behave(secret=made.secret or "", **behave))

    @property
    def by(self) -> Operator:
        return self.runtime.operator(SERVICE, TENANT, actor="test")

    async def change_endpoint(self, verb: str, property_id: str = P, *, reason: str = "test") -> Any:
        path = f"{ENDPOINTS}/{quote(property_id, safe='')}/{verb}"
        return await self.post(path, {"reason": reason})

    async def resolve(self, delivery_id: str) -> None:
        path = f"/api/v1/dead-letters/renewals/{quote(delivery_id, safe='')}/resolve"
        await self.post(path, {"note": "told them by telephone"})

    async def create_endpoint(self, property_id: str, url: str) -> EndpointRow:
        new = NewEndpoint(id=property_id, url=url)
        return await endpoints.create(self.runtime, self.by, "renewals", new)

    async def delivery(self, delivery_id: str, *statuses: str, within_s: float = 30.0) -> Any:
        """The delivery once it is in one of these states."""
        async with asyncio.timeout(within_s):
            while True:
                found = await self.get(f"/deliveries/{delivery_id}")
                if found["status"] in statuses:
                    return found
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def calculating(server: Server) -> AsyncIterator[None]:
    """Work on calculations alone."""
    stop = asyncio.Event()
    renewals = server.runtime.parts["renewals"].operations
    runner = Runner(server.runtime.store.privileged(), [renewals.workflow], models=JOBS)
    task = asyncio.create_task(runner.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


@contextlib.asynccontextmanager
async def serving(home: Path, *, url: str | None = None, working: bool = True) -> AsyncIterator[Server]:
    """The whole over a socket, with its loops unless told otherwise."""
    settings = {"home": home, "allow": "127.0.0.1", **({"store": url} if url else {})}
    runtime = await Runtime.open(load_config(settings, environ={}), services=[service], clock=SystemClock())
    surface = create_app(runtime)
    surface.ready = True
    stop = asyncio.Event()
    work = asyncio.create_task(runtime.work(stop)) if working else None
    token = await ApiTokens(runtime.store).create("test", role="admin", tenant_id=TENANT)
    beneath = uvicorn.Config(surface, http="httptools", log_level="warning", lifespan="off")
    try:
        async with (
            served(beneath) as address,
            RmsSimulator(clock=SystemClock()) as rms,
            aiohttp.ClientSession(address) as client,
        ):
            yield Server(runtime, client, rms, token)
    finally:
        stop.set()
        if work is not None:
            await work
        await runtime.close()
