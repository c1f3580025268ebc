"""What the service's routes have in common."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from holdfast import routing
from holdfast.services.renewals.operations import Renewals

AREA: Final = "renewals"

reads = partial(routing.read_route, area=AREA)
acts = partial(routing.action_route, area=AREA)
sets = partial(routing.put_route, area=AREA)


def renewals_of(runtime: Any) -> Renewals:
    """The service in this process."""
    found: Renewals = runtime.parts["renewals"].operations
    return found
