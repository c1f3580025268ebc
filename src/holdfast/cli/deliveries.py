"""`holdfast deliveries`: list deliveries, show one, replay one."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    os_actor,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.errors import NotFoundError
from holdfast.http.routes.deliveries import DeliveryDetail, detail, row
from holdfast.kit.outbox import Deliveries, Delivery, Selection
from holdfast.kit.outbox.models import EVERY_STATUS, UNDELIVERED
from holdfast.operations.act import run_audited
from holdfast.runtime import Runtime
from holdfast.store import QueryPage

commands = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="As `deliveries list` shows it.")]


def _known(statuses: list[str] | None) -> list[str] | None:
    for status in statuses or ():
        if status not in EVERY_STATUS:
            raise typer.BadParameter(f"{status!r} is none of {', '.join(EVERY_STATUS)}")
    return statuses


@commands.command("list")
def list_command(
    status: Annotated[
        list[str] | None,
        typer.Option(callback=_known, help="May be repeated. Default: what has not arrived."),
    ] = None,
    endpoint: Annotated[str | None, typer.Option(metavar="ID", help="To this endpoint alone.")] = None,
    tenant: Tenant = PLATFORM,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show deliveries, newest first.

    \b
    Examples:
      holdfast deliveries list --tenant acme
      holdfast deliveries list --status delivered --endpoint rms-7
      holdfast deliveries list --status dead --json | jq -r '.items[].id'
    """
    chosen: Any = status or UNDELIVERED

    async def act(runtime: Runtime) -> QueryPage[Delivery]:
        selection = Selection(statuses=chosen, endpoint_id=endpoint)
        return await Deliveries(runtime.store.tenant(tenant)).find(selection, limit=limit, cursor=cursor)

    page = with_runtime(act)
    columns = ("id", "eventType", "status", "attemptCount", "lastStatus", "createdAt", "reason")
    print_table([row(doc) for doc in page.docs], columns, as_json=as_json, cursor=page.cursor)


@commands.command("show")
def show_command(delivery_id: _Id, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Show one delivery: its payload, and every attempt.

    \b
    Example:
      holdfast deliveries show 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
    """

    async def act(runtime: Runtime) -> DeliveryDetail:
        found = await runtime.store.tenant(tenant).get(Delivery, delivery_id)
        if found is None:
            raise NotFoundError(f"no delivery {delivery_id!r}")
        return detail(found.doc)

    told = with_runtime(act)
    print_result(told, msgspec.json.format(msgspec.json.encode(told), indent=2).decode(), as_json=as_json)


@commands.command("replay")
def replay_command(delivery_id: _Id, tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Put one out again, under its old id with its old body.

    \b
    Example:
      holdfast deliveries replay 01M7FC31MKK2B3M1SXP7S4FN8A~rms-7 --tenant acme
    """

    async def act(runtime: Runtime) -> bool:
        ledger = Deliveries(runtime.store.tenant(tenant))
        return await run_audited(
            runtime, tenant, lambda tx: ledger.replay_one(delivery_id, tx), actor=os_actor(),
            action="delivery.replayed", subject=delivery_id,
        )  # fmt: skip

    done = with_runtime(act)
    text = f"{delivery_id} goes out again" if done else f"{delivery_id} is on its way already"
    print_result({"id": delivery_id, "replayed": done}, text, as_json=as_json)
