"""`holdfast deliveries`: list deliveries, show one and its attempts, replay one, cancel one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    Tenants,
    operate,
    print_result,
    with_runtime,
)
from holdfast.cli.outboxes import OutboxName, print_page
from holdfast.clock import parse_instant
from holdfast.kit import ALL_TENANTS
from holdfast.kit.outbox import Delivery
from holdfast.kit.outbox.models import EVERY_STATUS, UNDELIVERED
from holdfast.operations import attempts, deliveries
from holdfast.operations.attempts import AttemptDetail
from holdfast.rendering.formatting import body as pretty_body
from holdfast.runtime import KIT_PART, documents_of, find_services

commands = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="As `deliveries list` shows it.")]


def _known(statuses: list[str] | None) -> list[str] | None:
    """Refuse what is neither a state of the outbox nor a word that a service's deliveries have for one."""
    unknown = set(statuses or ()) - set(EVERY_STATUS)
    if unknown:
        kinds = [cls for cls in documents_of(find_services()) if issubclass(cls, Delivery)]
        unknown -= {word for cls in kinds for word in cls.state_names.values()}
    if unknown:
        raise typer.BadParameter(f"{min(unknown)!r} is none of {', '.join(EVERY_STATUS)}")
    return statuses


def _instant(text: str) -> datetime:
    try:
        return parse_instant(text)
    except ValueError as fault:
        raise typer.BadParameter(f"write {fault}") from None


@commands.command("list")
def list_command(
    status: Annotated[
        list[str] | None,
        typer.Option(callback=_known, help="May be repeated. Default: what has not arrived."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="ID", help="To this endpoint alone.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            parser=_instant, metavar="TIME", help="Created then or later, in UTC unless it has a zone."
        ),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(parser=_instant, metavar="TIME", help="Created before then.")
    ] = None,
    outbox: OutboxName = KIT_PART,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show deliveries, newest first.

    \b
    Examples:
      holdfast deliveries list --tenant acme
      holdfast deliveries list --outbox renewals --status delivered --endpoint property-0001
      holdfast deliveries list --since 2026-11-16T21:00Z --until 2026-11-16T22:00Z
      holdfast deliveries list --status dead --json | jq -r '.items[].id'
    """
    chosen = status or UNDELIVERED
    print_page(
        outbox,
        tenant,
        lambda runtime: deliveries.list_deliveries(
            runtime, tenant, outbox, statuses=chosen, endpoint_id=endpoint, since=since, until=until,
            limit=limit, cursor=cursor,
        ),
        columns=(
            "id", "eventType", "status", "attemptCount", "lastStatus", "createdAt", "reason", "holdReason",
        ),
        what="deliveries", as_json=as_json,
    )  # fmt: skip


@commands.command("show")
def show_command(
    delivery_id: _Id, outbox: OutboxName = KIT_PART, tenant: Tenants = ALL_TENANTS, as_json: AsJson = False
) -> None:
    """Show one delivery: its payload, and every attempt.

    \b
    Example:
      holdfast deliveries show 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
    """
    shown = with_runtime(
        lambda runtime: deliveries.detail(runtime, tenant, outbox, delivery_id), services=None
    )
    print_result(shown, msgspec.json.format(msgspec.json.encode(shown), indent=2).decode(), as_json=as_json)


@commands.command("attempt")
def attempt_command(
    delivery_id: _Id,
    number: Annotated[
        int | None, typer.Option(min=1, help="Counted from 1, the first. Default: the last.")
    ] = None,
    curl: Annotated[
        bool, typer.Option("--curl", help="Print only a curl command that repeats the request.")
    ] = False,
    outbox: OutboxName = KIT_PART,
    tenant: Tenants = ALL_TENANTS,
    as_json: AsJson = False,
) -> None:
    """Show one attempt: the request with its headers and signature, and the response with its own.

    Secrets are shown as ***. The curl command has the signature and the time of that attempt; receivers
    that check the time refuse it after some minutes, and `deliveries replay` signs anew.

    \b
    Examples:
      holdfast deliveries attempt 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
      holdfast deliveries attempt 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme --number 1 --curl
    """
    shown = with_runtime(
        lambda runtime: attempts.get_attempt(runtime, tenant, outbox, delivery_id, number=number),
        services=None,
    )
    if curl:
        typer.echo(shown.curl)
        return
    print_result(shown, _attempt_text(shown), as_json=as_json)


def _attempt_text(shown: AttemptDetail) -> str:
    request, response = shown.request, shown.response
    outcome = f"{shown.failure}: {shown.message}" if response is None else f"HTTP {response.status}"
    lines = [
        f"attempt {shown.number} of {shown.count}, {shown.at:%Y-%m-%d %H:%M:%S} UTC, {shown.latency_ms} ms",
        "", f"{request.method} {request.url}", *(f"{one.name}: {one.value}" for one in request.headers),
        "", pretty_body(request.body), "", outcome,
    ]  # fmt: skip
    if response is not None:
        lines += [*(f"{one.name}: {one.value}" for one in response.headers), "", response.body]
    return "\n".join(lines)


@commands.command("replay")
def replay_command(
    delivery_id: _Id, outbox: OutboxName = KIT_PART, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Send one again, under its old event id with its old body.

    \b
    Example:
      holdfast deliveries replay 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
    """
    done = operate(tenant, lambda runtime, by: deliveries.replay(runtime, by, outbox, delivery_id))
    text = f"{delivery_id} is sent again" if done.replayed else f"{delivery_id} is in flight already"
    print_result(done, text, as_json=as_json)


@commands.command("cancel")
def cancel_command(
    delivery_id: _Id, outbox: OutboxName = KIT_PART, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Cancel a delivery that waits, so that it is not sent; it can be replayed later.

    \b
    Example:
      holdfast deliveries cancel 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
    """
    done = operate(tenant, lambda runtime, by: deliveries.cancel(runtime, by, outbox, delivery_id))
    print_result(done, f"{delivery_id} is cancelled", as_json=as_json)
