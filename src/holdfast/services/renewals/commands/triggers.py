"""Sending residents to the RMS."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from holdfast.operation import Operator
from holdfast.progress_bar import progress_bar
from holdfast.services.renewals.commands.options import (
    OWN,
    AsJson,
    PropertyId,
    Tenant,
    operate,
    terminal,
    working,
)
from holdfast.services.renewals.domain.scoring import FLAGGED
from holdfast.services.renewals.jobs.risk_events import TriggerResult
from holdfast.services.renewals.jobs.trigger_jobs import describe_progress
from holdfast.services.renewals.models import TRIGGER_JOBS, TriggerJob
from holdfast.services.renewals.operations import Renewals


def trigger_command(
    ctx: typer.Context,
    property_id: PropertyId,
    resident: Annotated[list[str] | None, typer.Argument(help="Residents; or else a --tier.")] = None,
    tier: Annotated[
        Literal["high", "medium", "low", "flagged"] | None,
        typer.Option(help="A whole tier of the latest run; flagged is high and medium."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Of more than 10,000: work on it here, and wait for it.")
    ] = True,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Send flagged residents of the latest run to the RMS; a process that works (`serve`) delivers them.

    More than 10,000 are sent by a job, with its progress. Ends with 1 where that fails, or where one that is
    named is not flagged.

    \b
    Examples:
      holdfast renewals trigger property-0001 resident-0000001
      holdfast renewals trigger property-0001 --tier high
    """
    if resident and tier:
        raise typer.BadParameter("name residents or a --tier, not both")
    if not resident and tier is None:
        raise typer.BadParameter(
            "name residents or a --tier (high, medium or flagged): nobody is sent by default"
        )

    async def act(renewals: Renewals, by: Operator) -> list[TriggerResult] | TriggerJob:
        if resident:
            return await renewals.trigger_residents(by, property_id, resident)
        tiers = FLAGGED if tier is None or tier == "flagged" else (tier,)
        sent = await renewals.trigger_tiers(by, property_id, tiers=tiers)
        return await _finish(renewals, sent) if isinstance(sent, TriggerJob) and wait else sent

    sent = operate(ctx, act, tenant=tenant)
    if isinstance(sent, TriggerJob):
        _print_job(ctx, sent, as_json=as_json)
        return
    columns = ("residentId", "status", "eventId")
    terminal(ctx).print_table(sent, columns, as_json=as_json, none="nobody to send")
    left_out = set(resident or ()) - {one.resident_id for one in sent}
    if left_out:
        typer.echo(f"not flagged in the latest run: {', '.join(sorted(left_out))}", err=True)
        raise typer.Exit(1)


async def _finish(renewals: Renewals, job: TriggerJob) -> TriggerJob:
    """Work on the job here until it has ended."""
    jobs = renewals.trigger_jobs(job.tenant_id)
    with progress_bar() as bar:
        task = bar.add_task("sent", total=job.residents)
        async with working(renewals, renewals.trigger_workflow, models=TRIGGER_JOBS):
            while job.completed_at is None:
                job = await jobs.wait(job.id, within_s=0.2)
                bar.update(task, completed=job.told)
    return job


def _print_job(ctx: typer.Context, job: TriggerJob, *, as_json: bool) -> None:
    fields = ("id", "property_id", "status", "tiers", "calculated_at", "residents", "told", "counts", "error")
    row = {name: getattr(job, name) for name in fields}
    terminal(ctx).print_result(row, f"{job.id} {job.status}: {describe_progress(job)}", as_json=as_json)
    if job.status in ("failed", "cancelled"):
        raise typer.Exit(1)
