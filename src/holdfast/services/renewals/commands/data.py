"""Bringing data in, and calculating on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.errors import InvalidError
from holdfast.operation import Operator
from holdfast.plural import plural
from holdfast.progress_bar import progress_bar
from holdfast.services.renewals.commands.options import (
    OWN,
    AsJson,
    PropertyId,
    Tenant,
    day,
    operate,
    terminal,
    with_renewals,
    working,
)
from holdfast.services.renewals.domain.dates import check_day
from holdfast.services.renewals.ingest.reports import TableReport, write_aside
from holdfast.services.renewals.ingest.sources import Folder, TableSource, open_source
from holdfast.services.renewals.jobs.calculation_jobs import KEY_MAX, failure_of
from holdfast.services.renewals.models import JOBS, BadRow, CalculationJob, SourceState
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.sample_data import PER_PROPERTY, SamplePlan, keep, today

BAD_SHOWN = 20
WAIT_S = 3_600.0


class Imported(msgspec.Struct, frozen=True):
    tables: list[TableReport]
    set_aside: list[str]


def import_command(
    ctx: typer.Context,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="DIR|URL",
            help="A folder of TABLE.csv files, or postgresql://USER@HOST/DATABASE?schema=NAME;"
            " the source of the settings unless given.",
        ),
    ] = None,
    bad: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where bad rows go; DIR/bad unless given, nowhere for a database."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove what came from elsewhere and is not in the database.")
    ] = False,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Import the platform's tables; the same rows again change nothing.

    A database is only read, and mirrored: what is gone there is removed here. Files add and change only.
    Bad rows are named, set aside in files of their own, and make the exit code 1.

    \b
    Examples:
      holdfast renewals import export/
      holdfast renewals import export/ --bad /var/tmp/bad --json
      holdfast renewals import "postgresql://reader@db/x?schema=rop"
    """
    given = None if place is None else _source(place)

    async def act(renewals: Renewals, by: Operator) -> list[TableReport]:
        source = given or _configured_source(renewals)
        if given is None:
            by = msgspec.structs.replace(by, tenant_id=renewals.refresh.tenant_id)
        with progress_bar() as bar:
            tasks = {"": bar.add_task(f"reading {source.name}", total=None)}

            def show(report: TableReport) -> None:
                if report.table not in tasks:
                    tasks[report.table] = bar.add_task(report.table, total=None)
                bar.update(tasks[report.table], completed=report.rows)

            return await renewals.import_tables(by, source, replace=replace, on_progress=show)

    reports = operate(ctx, act, tenant=tenant)
    wrong = [one for report in reports for one in report.bad]
    aside = _aside(given, bad, wrong)
    if as_json:
        terminal(ctx).print_result(Imported(reports, aside), "", as_json=True)
    else:
        _print(ctx, reports, wrong, aside=aside)
    if wrong:
        raise typer.Exit(1)


def _source(place: str) -> TableSource:
    try:
        return open_source(place)
    except InvalidError as fault:
        raise typer.BadParameter(fault.message) from None


def _configured_source(renewals: Renewals) -> TableSource:
    if not renewals.refresh.in_use:
        raise typer.BadParameter("name a folder or a database, or set `source` of [service.renewals]")
    return renewals.refresh.source()


def _aside(given: TableSource | None, folder: Path | None, wrong: Sequence[BadRow]) -> list[str]:
    """Write bad rows to files; those of a database are corrected there, so only where a folder is given."""
    if folder is None and isinstance(given, Folder):
        folder = given.path / "bad"
    return [str(path) for path in write_aside(folder, wrong)] if wrong and folder is not None else []


def _print(
    ctx: typer.Context, reports: list[TableReport], wrong: Sequence[BadRow], *, aside: list[str]
) -> None:
    columns = ("table", "rows", "created", "updated", "removed", "unchanged")
    rows = [{name: getattr(one, name) for name in columns} | {"bad": len(one.bad)} for one in reports]
    terminal(ctx).print_table(rows, (*columns, "bad"), as_json=False)
    for one in wrong[:BAD_SHOWN]:
        typer.echo(f"{_place(one)}: {one.field}: {one.reason}", err=True)
    if len(wrong) > BAD_SHOWN:
        typer.echo(f"and {len(wrong) - BAD_SHOWN} more", err=True)
    if aside:
        typer.echo(f"set aside in {', '.join(aside)}: correct and import that folder", err=True)


def _place(bad: BadRow) -> str:
    return f"{bad.table}.csv row {bad.row}" if isinstance(bad.row, int) else f"{bad.table} {bad.row}"


def source_command(ctx: typer.Context, tenant: Tenant = OWN, as_json: AsJson = False) -> None:
    """Show where the data comes from, how old it is, and which rows did not fit.

    \b
    Examples:
      holdfast renewals source
      holdfast renewals source --json | jq -r .read_at
    """

    async def act(renewals: Renewals) -> tuple[SourceState | None, datetime]:
        return await renewals.source_state(tenant), renewals.clock.now()

    state, now = with_renewals(ctx, act)
    terminal(ctx).print_result(
        state, "nothing was imported yet" if state is None else _describe(state, now), as_json=as_json
    )


def _describe(state: SourceState, now: datetime) -> str:
    if state.read_at is None:
        lines = [f"{state.source}: never read to the end"]
    else:
        age_s = (now - state.read_at).total_seconds()
        age = plural(round(age_s / 60), "minute")
        lines = [f"{state.source}: as of {state.read_at:%Y-%m-%d %H:%M:%S} UTC, {age} ago"]
    lines += [f"  {table}: {plural(one.rows, 'row')}, {one.bad} bad" for table, one in state.tables.items()]
    lines += [f"  bad: {_place(one)}: {one.field}: {one.reason}" for one in state.bad_rows]
    if state.failed_at is not None:
        lines.append(f"  failed at {state.failed_at:%Y-%m-%d %H:%M:%S} UTC: {state.error}")
    return "\n".join(lines)


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
    if chosen is not None:
        check_day(chosen, "as_of")

    async def act(renewals: Renewals) -> int:
        plan = SamplePlan(
            residents=residents, as_of=chosen or today(renewals.clock.now()), tenant_id=tenant,
            per_property=per_property, seed=seed,
        )  # fmt: skip
        done = 0
        with progress_bar() as bar:
            task = bar.add_task("residents", total=residents)
            async for done in keep(renewals.store(tenant), plan):
                bar.update(task, completed=done)
        return done

    done = with_renewals(ctx, act)
    properties = -(-done // per_property)
    text = (
        f"{plural(done, 'resident')} in {plural(properties, 'property', 'properties')}, property-0001 and on"
    )
    terminal(ctx).print_result({"residents": done, "properties": properties}, text, as_json=as_json)


def calculate_command(
    ctx: typer.Context,
    property_id: PropertyId,
    as_of: Annotated[
        str | None, typer.Option(metavar="DAY", help="The property's today unless given.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="TEXT", help="The same key gives the same job.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Work on it here, and wait for it.")] = True,
    tenant: Tenant = OWN,
    as_json: AsJson = False,
) -> None:
    """Score every resident of a property. Ends with 1 and the reason where the calculation fails.

    \b
    Examples:
      holdfast renewals calculate property-0001
      holdfast renewals calculate property-0001 --as-of 2026-03-01 --json
    """
    chosen = day(as_of)
    if key is not None and not 1 <= len(key) <= KEY_MAX:
        raise typer.BadParameter(f"a key must not be empty, and has at most {KEY_MAX} characters")

    async def act(renewals: Renewals, by: Operator) -> CalculationJob:
        job = await renewals.calculate(by, property_id, as_of=chosen, key=key)
        return await _finish(renewals, job) if wait else job

    job = operate(ctx, act, tenant=tenant)
    fields = ("id", "property_id", "status", "as_of_date", "calculated_at", "residents", "scored", "skipped",
              "high", "medium", "low", "sent", "error")  # fmt: skip
    text = (
        f"{job.id} {job.status}: {job.scored} scored, {job.skipped} without an active lease;"
        f" {job.high} high, {job.medium} medium, {job.low} low"
        f"{f'; {job.sent} are sent to the RMS' if job.sent else ''}"
    )
    terminal(ctx).print_result({name: getattr(job, name) for name in fields}, text, as_json=as_json)
    if job.status in ("failed", "cancelled"):
        typer.echo(failure_of(job).message, err=True)
        raise typer.Exit(1)


async def _finish(renewals: Renewals, job: CalculationJob) -> CalculationJob:
    """Work on the job here until it has ended."""
    jobs = renewals.jobs(job.tenant_id)
    with progress_bar() as bar:
        task = bar.add_task("scored", total=None)
        async with working(renewals, renewals.workflow, models=JOBS):
            while job.completed_at is None:
                job = await jobs.wait(job.id, within_s=0.2)
                bar.update(task, completed=job.scored, total=job.residents or None)
    return job
