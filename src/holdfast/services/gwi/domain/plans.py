"""Plans, and what each allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

PlanName = Literal["free", "team", "pro", "enterprise"]
Limit = Annotated[int, Meta(ge=0)]


class PlanLimits(Struct, rename="camel", kw_only=True, frozen=True):
    """How much a tenant may use; without `concurrent_runs_max` the plan's own counts."""

    runs_per_month: Limit
    repos_max: Limit
    members_max: Limit
    concurrent_runs_max: Limit | None = None


PLANS: Final[Mapping[PlanName, PlanLimits]] = {
    "free": PlanLimits(runs_per_month=50, repos_max=3, members_max=3, concurrent_runs_max=1),
    "team": PlanLimits(runs_per_month=200, repos_max=10, members_max=8, concurrent_runs_max=3),
    "pro": PlanLimits(runs_per_month=500, repos_max=20, members_max=15, concurrent_runs_max=5),
    "enterprise": PlanLimits(runs_per_month=10_000, repos_max=200, members_max=100, concurrent_runs_max=20),
}


def concurrent_runs_max(plan: PlanName, limits: PlanLimits) -> int:
    """How many runs a tenant may have at once: by its own limits, or else by its plan."""
    own = limits.concurrent_runs_max
    return PLANS[plan].concurrent_runs_max or 0 if own is None else own


def seats_left(limits: PlanLimits, *, members: int, pending: int) -> int:
    """How many more people may be invited; an invitation that nobody accepted yet takes a seat."""
    return max(0, limits.members_max - members - pending)
