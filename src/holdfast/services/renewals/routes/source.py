"""Where a portfolio's data comes from, and which moment it is of."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import NotFoundError
from holdfast.projection import project
from holdfast.routing import TenantId
from holdfast.services.renewals.models import SourceState
from holdfast.services.renewals.routes.dependencies import Operations, read_route


class SourceRow(msgspec.Struct, frozen=True):
    """A row that did not fit; `row` is its number in a file, or its id in a database."""

    table: str
    row: int | str
    field: str
    reason: str


class SourceResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The data is of `read_at`, `age_s` seconds ago; `error` is why a later try to read failed."""

    source: str
    read_at: datetime | None
    age_s: int | None
    rows: dict[str, int]
    bad: int
    bad_rows: list[SourceRow]
    failed_at: datetime | None
    error: str


@read_route("/source")
async def show_source(operations: Operations, tenant_id: TenantId) -> SourceResponse:
    """Where the data comes from, how old it is, and the first rows that did not fit.

    Example: `GET …/source`
    """
    state = await operations.source_state(tenant_id)
    if state is None:
        raise NotFoundError("nothing was imported into this portfolio yet", "source")
    return shown(state, operations.clock.now())


def shown(state: SourceState, now: datetime) -> SourceResponse:
    """The state as callers see it at this moment."""
    age_s = None if state.read_at is None else max(0, round((now - state.read_at).total_seconds()))
    return project(
        state,
        SourceResponse,
        age_s=age_s,
        rows={table: one.rows for table, one in state.tables.items()},
        bad=sum(one.bad for one in state.tables.values()),
        bad_rows=[project(one, SourceRow) for one in state.bad_rows],
    )


ROUTES: Final = (show_source,)
