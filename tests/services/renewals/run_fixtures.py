"""What tests of calculation runs share: the people, and what was found of them."""

from __future__ import annotations

from holdfast.services.renewals.domain.scoring import TIERS
from holdfast.services.renewals.models import CalculationJob, RiskScore
from holdfast.services.renewals.queries.scores import scores_of_run
from holdfast.store import Store
from tests.faults.controlled_process import ControlledProcess
from tests.services.renewals.crash_points import until_dead
from tests.services.renewals.server import Person

PEOPLE = [Person(f"R{n:02}", 20 + n, 1_400) for n in range(20)]


async def scores_by_resident(store: Store, job: CalculationJob) -> dict[str, RiskScore]:
    """Everybody's score of a run; each resident has one."""
    found = await scores_of_run(store.tenant("-"), job.property_id, job.calculated_at, tiers=TIERS)
    by_id = {one.resident_id: one for one in found}
    assert len(by_id) == len(found)
    return by_id


async def lives(process: ControlledProcess, store: Store, job_id: str) -> int:
    """Let it work until it dies; gives how many the run has scored by then."""
    await until_dead(process)
    found = await store.tenant("-").get(CalculationJob, job_id)
    assert found is not None
    return found.doc.scored
