"""Withdrawing a wrong run."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from holdfast.services.renewals.commands.options import OWN, AsJson, PropertyId, Tenant, operate, terminal


def withdraw_command(
    ctx: typer.Context,
    property_id: PropertyId,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The latest run, as `runs` shows it.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it is wrong.")] = "",
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Withdraw a property's latest run, because it is wrong; the run before it is the latest again.

    Its scores count no longer. Events that it sent stay on record, and are counted by state.

    \b
    Example:
      holdfast renewals withdraw property-0001 run-m5v2kx8a-a7b3c9d2 --reason "wrong day"
    """
    done = operate(
        ctx, lambda renewals, by: renewals.withdraw(by, property_id, run_id, reason=reason), tenant=tenant
    )
    row = {
        "jobId": done.job.id, "withdrawnAt": done.job.withdrawn_at, "reason": done.job.error,
        "latest": msgspec.to_builtins(done.latest), "events": done.events,
    }  # fmt: skip
    terminal(ctx).print_result(row, done.describe(), as_json=as_json)
