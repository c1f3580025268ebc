"""`holdfast endpoints`: create, change, switch, test and delete the endpoints that events go to."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    Tenants,
    operate,
    print_facts,
    print_result,
    print_table,
    with_runtime,
    word_option,
)
from holdfast.cli.outboxes import OutboxName, print_page
from holdfast.kit import ALL_TENANTS
from holdfast.kit.outbox.models import EndpointStatus
from holdfast.operation import Operator
from holdfast.operations import endpoints
from holdfast.operations.endpoints import (
    CONCURRENCY_MAX,
    EndpointRow,
    EndpointSettings,
    NewEndpoint,
    StateChange,
)
from holdfast.plural import plural
from holdfast.runtime import KIT_PART, Runtime

commands = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="ID", help="As `endpoints list` shows it.")]
_EventTypes = Annotated[
    list[str] | None,
    typer.Option("--event-type", metavar="TYPE", help="What it takes, such as invoice.*; may be repeated."),
]
_Rate = Annotated[float | None, typer.Option("--rate", metavar="NUMBER", help="At most this many a second.")]


@commands.command("list")
def list_command(
    status: Annotated[str | None, word_option(EndpointStatus, metavar="STATUS")] = None,
    outbox: OutboxName = KIT_PART,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show endpoints, newest first; never with a secret.

    \b
    Examples:
      holdfast endpoints list --tenant acme
      holdfast endpoints list --outbox renewals --status paused --json
    """
    wanted = cast(EndpointStatus | None, status)
    print_page(
        outbox,
        tenant,
        lambda runtime: endpoints.list_endpoints(
            runtime, tenant, outbox, status=wanted, limit=limit, cursor=cursor
        ),
        columns=("id", "url", "status", "reason", "concurrency", "ratePerS", "createdAt"),
        what="endpoints", as_json=as_json,
    )  # fmt: skip


@commands.command("show")
def show_command(
    endpoint_id: _Id, outbox: OutboxName = KIT_PART, tenant: Tenants = ALL_TENANTS, as_json: AsJson = False
) -> None:
    """Show one endpoint: its settings, its state, and the notices of its changes.

    \b
    Example:
      holdfast endpoints show rms-7 --tenant acme
    """
    shown = with_runtime(lambda runtime: endpoints.get(runtime, tenant, outbox, endpoint_id), services=None)
    if as_json:
        print_result(shown, "", as_json=True)
        return
    circuit = shown.circuit.summary if shown.circuit else "closed"
    print_facts(shown, leave_out=("notices", "secret"), circuit=circuit)
    print_table(shown.notices, ("at", "kind", "by", "reason"), as_json=False, none="no notices")


@commands.command("create")
def create_command(
    url: Annotated[str, typer.Argument(help="Where to send, https://…")],
    endpoint_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Default: a new one.")] = None,
    event_types: _EventTypes = None,
    concurrency: Annotated[
        int, typer.Option(min=1, max=CONCURRENCY_MAX, help="At most this many at once.")
    ] = 10,
    rate: _Rate = None,
    fifo: Annotated[bool, typer.Option("--fifo", help="Keep the order of events; can't be changed.")] = False,
    outbox: OutboxName = KIT_PART,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Create an endpoint; its secret is printed this once.

    \b
    Examples:
      holdfast endpoints create https://crm.example/hook --tenant acme --event-type invoice.*
      holdfast endpoints create https://rms.example/1 --id property-0001 --outbox renewals
    """
    new = NewEndpoint(
        id=endpoint_id, url=url, event_types=event_types or None, concurrency=concurrency, rate_per_s=rate,
        fifo=fifo,
    )  # fmt: skip
    made = operate(tenant, lambda runtime, by: endpoints.create(runtime, by, outbox, new))
    text = f"{made.id} sends to {made.url}; its secret, shown this once: {made.secret}"
    print_result(made, text, as_json=as_json)


@commands.command("update")
def update_command(
    endpoint_id: _Id,
    url: Annotated[str | None, typer.Option(metavar="URL", help="Where to send.")] = None,
    event_types: _EventTypes = None,
    every_event: Annotated[bool, typer.Option("--every-event", help="Take events of any type.")] = False,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=CONCURRENCY_MAX, help="At most this many at once.")
    ] = None,
    rate: _Rate = None,
    no_rate: Annotated[bool, typer.Option("--no-rate", help="Send as fast as it can take.")] = False,
    outbox: OutboxName = KIT_PART,
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Change where an endpoint sends, what and how fast; what is not given stays.

    \b
    Examples:
      holdfast endpoints update rms-7 --tenant acme --url https://rms.example/new
      holdfast endpoints update rms-7 --tenant acme --rate 20 --event-type lease.*
    """

    async def act(runtime: Runtime, by: Operator) -> EndpointRow:
        before = await endpoints.get(runtime, tenant, outbox, endpoint_id)
        settings = EndpointSettings(
            url=url or before.url, concurrency=concurrency or before.concurrency,
            event_types=[] if every_event else event_types or before.event_types,
            rate_per_s=None if no_rate else before.rate_per_s if rate is None else rate,
        )  # fmt: skip
        return await endpoints.update(runtime, by, outbox, endpoint_id, settings)

    done = operate(tenant, act)
    print_result(done, f"{endpoint_id} sends to {done.url}", as_json=as_json)


@commands.command("rotate")
def rotate_command(
    endpoint_id: _Id,
    outbox: OutboxName = KIT_PART,
    tenant: Tenant = PLATFORM,
    end_others: Annotated[
        bool, typer.Option("--end-others", help="End every other secret at once: one has leaked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give an endpoint a fresh secret, printed this once; the old one signs too for a day.

    \b
    Examples:
      holdfast endpoints rotate rms-7 --tenant acme
      holdfast endpoints rotate rms-7 --tenant acme --end-others
    """
    done = operate(
        tenant, lambda runtime, by: endpoints.rotate(runtime, by, outbox, endpoint_id, end_others=end_others)
    )
    print_result(done, f"the secret of {endpoint_id}, shown this once: {done.secret}", as_json=as_json)


@commands.command("test")
def send_test_command(
    endpoint_id: _Id, outbox: OutboxName = KIT_PART, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Send a holdfast.test event to one endpoint.

    \b
    Example:
      holdfast endpoints test rms-7 --tenant acme
    """
    sent = operate(tenant, lambda runtime, by: endpoints.send_test(runtime, by, outbox, endpoint_id))
    print_result(sent, f"{sent.id} is sent as soon as a worker sees it", as_json=as_json)


@commands.command("replay-skipped")
def replay_skipped_command(
    endpoint_id: _Id,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    outbox: OutboxName = KIT_PART,
    tenant: Tenant = PLATFORM,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Send what was skipped while an endpoint was disabled, each under its old event id with its old body.

    \b
    Examples:
      holdfast endpoints replay-skipped rms-7 --tenant acme --dry-run
      holdfast endpoints replay-skipped rms-7 --tenant acme --limit 100
    """
    report = operate(
        tenant,
        lambda runtime, by: endpoints.replay_skipped(
            runtime, by, outbox, endpoint_id, dry_run=dry_run, limit=limit
        ),
    )
    text = (
        f"{plural(report.matched, 'delivery', 'deliveries')} would be sent"
        if dry_run
        else plural(report.changed, "delivery is sent", "deliveries are sent")
    )
    print_result(report, text, as_json=as_json)


@commands.command("delete")
def delete_command(
    endpoint_id: _Id, outbox: OutboxName = KIT_PART, tenant: Tenant = PLATFORM, as_json: AsJson = False
) -> None:
    """Disable an endpoint, cancel what waits for it, and delete it; its dead letters stay.

    \b
    Example:
      holdfast endpoints delete rms-7 --tenant acme
    """
    done = operate(tenant, lambda runtime, by: endpoints.delete(runtime, by, outbox, endpoint_id))
    print_result(done, f"{endpoint_id} is deleted; deliveries cancelled: {done.cancelled}", as_json=as_json)


def _add_state_command(verb: str, change: StateChange) -> None:
    def command(
        endpoint_id: _Id,
        reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; people see it.")] = "",
        outbox: OutboxName = KIT_PART,
        tenant: Tenant = PLATFORM,
        as_json: AsJson = False,
    ) -> None:
        done = operate(tenant, lambda runtime, by: change(runtime, by, outbox, endpoint_id, reason=reason))
        print_result(done, f"{endpoint_id} is {done.status}", as_json=as_json)

    example = f'holdfast endpoints {verb} rms-7 --tenant acme --reason "maintenance"'
    command.__doc__ = f"{change.__doc__}\n\n\b\nExample:\n  {example}\n"
    commands.command(verb)(command)


_add_state_command("pause", endpoints.pause)
_add_state_command("resume", endpoints.resume)
_add_state_command("disable", endpoints.disable)
_add_state_command("enable", endpoints.enable)
