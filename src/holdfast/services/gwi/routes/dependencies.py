"""Declarations shared by the service's routes."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeAlias

from litestar.di import NamedDependency

from holdfast import routing
from holdfast.idempotent_route import Idempotent
from holdfast.services.gwi.models.runs import RequestRecord
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.declaration import AREA

# The answer is stored in the act's own commit; a repeatable act may make several, or be of another tenant.
ATOMIC: Final = Idempotent(kind=RequestRecord)
REPEATABLE: Final = Idempotent(kind=RequestRecord, repeatable=True)
TENANT: Final = "tenant"
TENANT_PATH: Final = "/tenants/{tenant:str}"

read_route = partial(routing.read_route, area=AREA, prefix="")
call_route = partial(routing.call_route, area=AREA, prefix="")
action_route = partial(routing.action_route, prefix="", idempotent=ATOMIC)
put_route = partial(routing.put_route, prefix="", idempotent=ATOMIC)
delete_route = partial(routing.delete_route, prefix="", idempotent=ATOMIC)

Operations: TypeAlias = NamedDependency[Gwi]
