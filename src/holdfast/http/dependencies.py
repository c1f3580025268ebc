"""What the operator's routes are given beyond what all routes are (`holdfast.routing`)."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from litestar.di import NamedDependency
from litestar.params import QueryParameter

from holdfast.runtime import Runtime

RuntimeDependency: TypeAlias = NamedDependency[Runtime]
OutboxName: TypeAlias = Annotated[
    str, QueryParameter(description="The outbox: the kit's own, or a service's.", max_length=200)
]
