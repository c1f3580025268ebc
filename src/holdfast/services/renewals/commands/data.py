"""Bringing data in, and calculating on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.services.renewals.commands.asked import (
    OWN,
    AsJson,
    PropertyId,
    Tenant,
    calculating,
    day,
    inside,
    me,
    progress,
    terminal,
)
from holdfast.services.renewals.importing import BadRow, TableReport, write_aside
from holdfast.services.renewals.keeper import Renewals
from holdfast.services.renewals.models import CalculationJob
from holdfast.services.renewals.sampling import PER_PROPERTY, Plan, keep

BAD_SHOWN = 20
WAIT_S = 3_600.0


class Imported(msgspec.Struct, frozen=True):
    tables: list[TableReport]
    set_aside: list[str]


def import_command(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="Holds TABLE.csv files.")
    ],
    bad: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where bad rows go; DIR/bad unless said.")
    ] = None,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Take the platform's tables in from CSV files; the same files again change nothing.

    Bad rows are named, set aside in files of their own, and make the exit code 1.

    \b
    Examples:
      holdfast renewals import export/
      holdfast renewals import export/ --bad /var/tmp/bad --json
    """

    async def act(renewals: Renewals) -> list[TableReport]:
        reports: dict[str, TableReport] = {}
        with progress() as bar:
            tasks = {}
            async for report in renewals.importer(tenant).folder(folder):
                if report.table not in tasks:
                    tasks[report.table] = bar.add_task(report.table, total=None)
                bar.update(tasks[report.table], completed=report.rows)
                reports[report.table] = report
        counts = {table: one.created + one.updated for table, one in reports.items()}
        await renewals.note(tenant, me(), "imported", subject=str(folder.name), details=counts)
        return list(reports.values())

    reports = inside(ctx, act)
    wrong = [one for report in reports for one in report.bad]
    aside = [str(path) for path in write_aside(bad or folder / "bad", wrong)] if wrong else []
    if as_json:
        terminal(ctx).tell(Imported(reports, aside), "", as_json=True)
    else:
        _tell(ctx, reports, wrong, aside=aside)
    if wrong:
        raise typer.Exit(1)


def _tell(
    ctx: typer.Context, reports: list[TableReport], wrong: Sequence[BadRow], *, aside: list[str]
) -> None:
    rows = [
        {"table": one.table, "rows": one.rows, "created": one.created, "updated": one.updated,
         "unchanged": one.unchanged, "bad": len(one.bad)}
        for one in reports
    ]  # fmt: skip
    columns = ("table", "rows", "created", "updated", "unchanged", "bad")
    terminal(ctx).show(rows, columns, as_json=False)
    for one in wrong[:BAD_SHOWN]:
        typer.echo(f"{one.table}.csv row {one.row}: {one.field}: {one.reason}", err=True)
    if len(wrong) > BAD_SHOWN:
        typer.echo(f"and {len(wrong) - BAD_SHOWN} more", err=True)
    if aside:
        typer.echo(f"set aside in {', '.join(aside)}: mend and import that folder", err=True)


def sample_command(
    ctx: typer.Context,
    residents: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many.")] = 1_000,
    per_property: Annotated[
        int, typer.Option(min=1, help="How many of them in one property.")
    ] = PER_PROPERTY,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="The day it looks lived in; today.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same people.")] = 1,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Fill the store with made-up residents, their leases, payments and offers.

    \b
    Examples:
      holdfast renewals sample --residents 500
      holdfast renewals sample --residents 100000 --per-property 100000
    """
    chosen = day(as_of)

    async def act(renewals: Renewals) -> int:
        plan = Plan(
            residents=residents, as_of=chosen or renewals.clock.now().date(), tenant_id=tenant,
            per_property=per_property, seed=seed,
        )  # fmt: skip
        done = 0
        with progress() as bar:
            task = bar.add_task("residents", total=residents)
            async for done in keep(renewals.store(tenant), plan):
                bar.update(task, completed=done)
        return done

    done = inside(ctx, act)
    properties = -(-done // per_property)
    said = f"{done} residents in {properties} properties, property-0001 and on"
    terminal(ctx).tell({"residents": done, "properties": properties}, said, as_json=as_json)


def calculate_command(
    ctx: typer.Context,
    property_id: PropertyId,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="The property's today unless said.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="TEXT", help="The same key gives the same job.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Work on it here, and wait for it.")] = True,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Score every resident of a property.

    \b
    Examples:
      holdfast renewals calculate property-0001
      holdfast renewals calculate property-0001 --as-of 2026-03-01 --json
    """
    chosen = day(as_of)

    async def act(renewals: Renewals) -> CalculationJob:
        jobs = renewals.portfolio(tenant).jobs
        job = await jobs.start(property_id, as_of=chosen, by=me(), key=key)
        if not wait:
            return job
        with progress() as bar:
            task = bar.add_task("scored", total=None)
            async with calculating(renewals):
                while job.completed_at is None:
                    job = await jobs.ended(job.id, within_s=0.2)
                    bar.update(task, completed=job.scored, total=job.residents or None)
        return job

    job = inside(ctx, act)
    fields = ("id", "property_id", "status", "as_of_date", "calculated_at", "residents", "scored", "skipped",
              "high", "medium", "low", "sent", "error")  # fmt: skip
    said = (
        f"{job.id} {job.status}: {job.scored} scored, {job.skipped} without an active lease;"
        f" {job.high} high, {job.medium} medium, {job.low} low" + (f"; {job.error}" if job.error else "")
    )
    terminal(ctx).tell({name: getattr(job, name) for name in fields}, said, as_json=as_json)
    if job.status == "failed":
        raise typer.Exit(1)
