"""A calculation that somebody waits for and that fails, or is cancelled, is answered as a failure."""

from __future__ import annotations

from pathlib import Path

from holdfast.kit.runs import Runs
from holdfast.services.renewals.models import JOBS, Property
from holdfast.store import patch
from tests.services.renewals.server import P, Server, serving, settle_in

CALCULATE = f"/properties/{P}/renewal-risk/calculate"
# With a day given only the run itself meets the zone, and can't go on.
BODY = {"asOfDate": "2026-03-01"}


async def _break(server: Server) -> None:
    await server.store.commit(patch(Property, P, changes={"time_zone": "Nowhere/Land"}))


async def test_who_waits_for_a_run_that_fails_is_told_why_and_which_job_it_was(
    server: Server,
) -> None:
    await _break(server)
    headers = {"Idempotency-Key": "today"}
    status, answer = await server.ask("POST", CALCULATE + "?wait=true", json=BODY, headers=headers)
    fault = answer["error"]
    assert (status, fault["code"]) == (409, "failed")
    assert "Nowhere/Land" in fault["message"]
    assert "calculate again" in fault["message"]
    job = await server.get(f"/jobs/{fault['details']['jobId']}")
    assert (job["status"], job["error"]) == ("failed", fault["details"]["reason"])
    # The key stands for that job, so it fails alike; without waiting it is told of as any job is.
    again, answer = await server.ask("POST", CALCULATE + "?wait=true", json=BODY, headers=headers)
    assert (again, answer["error"]["details"]) == (409, fault["details"])
    told = await server.post(CALCULATE, BODY, status=202, headers=headers)
    assert (told["jobId"], told["status"]) == (job["jobId"], "failed")
    await server.store.commit(patch(Property, P, changes={"time_zone": "UTC"}))
    assert (await server.calculate())["totalResidents"] == 4


async def test_who_waits_for_a_run_that_is_cancelled_is_told_so(tmp_path: Path) -> None:
    async with serving(tmp_path, working=False) as server:
        await settle_in(server.store)
        headers = {"Idempotency-Key": "today"}
        job = await server.post(CALCULATE, BODY, status=202, headers=headers)
        await Runs(server.store, models=JOBS).cancel(job["jobId"], reason="not today")
        status, answer = await server.ask("POST", CALCULATE + "?wait=true", json=BODY, headers=headers)
        assert (status, answer["error"]["details"]["reason"]) == (409, "not today")
