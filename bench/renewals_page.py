"""The dashboard of a property with 5,000 residents, from the request to the last byte of the page.

As full as it gets: every run that a trend looks back on, those who gave notice, and events that wait.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Final

import aiohttp
import uvicorn

from bench.measure import Goal, Place, Ways, Workload
from holdfast.config import load_config
from holdfast.console import routes
from holdfast.http.app import create_app
from holdfast.kit.access import ApiTokens
from holdfast.kit.runs import Runner
from holdfast.model.access import SERVICE
from holdfast.operations import endpoints
from holdfast.operations.endpoints import NewEndpoint
from holdfast.runtime import Runtime
from holdfast.server import settings
from holdfast.services.renewals import service
from holdfast.services.renewals.models import JOBS
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.sample_data import SamplePlan, keep
from holdfast.services.renewals.views.dashboard import RUNS

LIMIT_MS: Final = 100.0
RESIDENTS: Final = 5_000
PROPERTY: Final = "property-0001"
AS_OF: Final = date(2026, 3, 1)
PATH: Final = f"/console/renewals/properties/{PROPERTY}"
# One request at a time, so that the page is measured and not a queue before it.
ASKED: Final = 40
_PLENTY: Final = {"caller_burst": 100_000, "address_burst": 100_000}


async def fill(runtime: Runtime) -> None:
    renewals: Renewals = runtime.parts["renewals"].operations
    store, by, jobs = renewals.store("-"), runtime.operator(SERVICE, "-", actor="bench"), renewals.jobs("-")
    plan = SamplePlan(residents=RESIDENTS, as_of=AS_OF, tenant_id="-", per_property=RESIDENTS)
    async for _ in keep(store, plan):
        pass
    stop = asyncio.Event()
    runner = Runner(runtime.store.privileged(), [renewals.workflow], models=JOBS)
    working = asyncio.create_task(runner.run(stop))
    for _ in range(RUNS):
        job = await renewals.calculate(by, PROPERTY, as_of=AS_OF)
        assert (await jobs.wait(job.id, within_s=120)).status == "completed"
    stop.set()
    await working
    new = NewEndpoint(id=PROPERTY, url="https://rms.example/webhooks")
    await endpoints.create(runtime, by, "renewals", new)
    await renewals.trigger_tiers(by, PROPERTY, tiers=["high"])


@asynccontextmanager
async def served(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """The console over a socket, for a user with permissions."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        config = load_config({"home": Path(home), "store": url, "limits": _PLENTY}, environ={})
        runtime = await Runtime.open(config, services=[service])
        await fill(runtime)
        surface = create_app(runtime, more=routes(runtime))
        surface.ready = True
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(settings(surface))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        token = await ApiTokens(runtime.store).create("bench", role="admin", tenant_id="-")
        address, who = f"http://127.0.0.1:{listener.getsockname()[1]}", {"authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(address, headers=who) as client:
            yield client
        server.should_exit = True
        await serving
        listener.close()
        await runtime.close()


@asynccontextmanager
async def dashboard(place: Place, engine: str) -> AsyncIterator[Ways]:
    async with served(place.url(engine)) as client:

        async def ours() -> float:
            took = []
            for _ in range(place.scale(ASKED, ASKED // 2)):
                start = time.perf_counter()
                async with client.get(PATH) as answer:
                    text = await answer.text()
                took.append((time.perf_counter() - start) * 1_000)
                assert answer.status == 200, text
                assert text.count('name="resident"') == 30, text
            return statistics.quantiles(took, n=20)[-1]

        async def limit() -> float:
            return LIMIT_MS

        yield Ways(ours=ours, other=limit)


WORKLOADS = [
    Workload(
        name="dashboard of 5,000 residents, p95", engines=("sqlite full", "postgres"), unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=dashboard,
    ),
]  # fmt: skip
