"""Declarations shared by the service's routes."""

from __future__ import annotations

from functools import partial
from typing import Annotated, TypeAlias

from litestar.di import NamedDependency
from litestar.params import QueryParameter

from holdfast import routing
from holdfast.services.renewals.operations import AREA, Renewals

read_route = partial(routing.read_route, area=AREA)

Operations: TypeAlias = NamedDependency[Renewals]
PropertyFilter = Annotated[
    str | None, QueryParameter(name="propertyId", max_length=100, description="Of this property alone.")
]
