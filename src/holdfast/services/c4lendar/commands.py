"""`holdfast c4lendar`: chats, their accounts and events, and what the parser understands."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import typer

from holdfast.operation import Operator
from holdfast.plural import plural
from holdfast.progress_bar import progress_bar
from holdfast.services.c4lendar.domain.kv_layout import read_pairs
from holdfast.services.c4lendar.kv_store import KvReport
from holdfast.services.c4lendar.models import BotChat, ChatStatus, GoogleConnection
from holdfast.services.c4lendar.operations import ChatOperations, find_zone
from holdfast.services.c4lendar.reports import event_row, parse_response

NAME = "c4lendar"
commands = typer.Typer(
    help="Chats, their accounts and events, and what the parser understands.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option(metavar="TEXT", help="Go on where the last page ended.")]
ChatId = Annotated[
    str, typer.Argument(metavar="CHAT", help="The chat's id; groups begin with a minus: -- -100…")
]


@commands.command()
def chats(
    ctx: typer.Context,
    status: Annotated[ChatStatus | None, typer.Option(help="Chats in this state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show the chats that the bot knows, the last changed first.

    \b
    Examples:
      holdfast c4lendar chats --status pending
      holdfast c4lendar chats --json | jq -r '.items[].chatId'
    """
    page = ctx.obj.with_service(NAME, lambda operations: operations.chats(status, limit=limit, cursor=cursor))
    rows = [_chat(doc) for doc in page.docs]
    columns = ("chatId", "title", "kind", "status", "timeZone", "updatedAt")
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="no chats yet")


def _chat(chat: BotChat) -> dict[str, Any]:
    return {
        "chatId": chat.chat_id, "title": chat.title, "kind": chat.kind, "status": chat.status,
        "timeZone": chat.time_zone, "updatedAt": chat.updated_at,
    }  # fmt: skip


@commands.command()
def accounts(ctx: typer.Context, chat: ChatId, as_json: AsJson = False) -> None:
    """Show the Google accounts that are connected to a chat.

    \b
    Example:
      holdfast c4lendar accounts -- -1001234567890
    """
    found = ctx.obj.with_service(NAME, lambda operations: operations.accounts(chat))
    rows = [_account(doc) for doc in found]
    none = "no account is connected; #aut in the chat connects one"
    ctx.obj.print_table(rows, ("email", "googleSub", "connectedBy", "since"), as_json=as_json, none=none)


def _account(account: GoogleConnection) -> dict[str, Any]:
    return {
        "email": account.google_email, "googleSub": account.google_sub,
        "connectedBy": account.connected_by_telegram_user_id, "since": account.created_at,
    }  # fmt: skip


@commands.command()
def events(ctx: typer.Context, chat: ChatId, limit: Limit = 50, as_json: AsJson = False) -> None:
    """Show the newest events of a chat, with how many accounts have each.

    \b
    Example:
      holdfast c4lendar events -- -1001234567890
    """

    async def read(operations: ChatOperations) -> list[dict[str, Any]]:
        recent = await operations.recent(chat, limit=limit)
        uids = [one.uid for one in recent]
        return [event_row(one, await operations.mappings(chat, one.uid), uids=uids) for one in recent]

    rows = ctx.obj.with_service(NAME, read)
    columns = ("reference", "title", "when", "accounts", "failed")
    ctx.obj.print_table(rows, columns, as_json=as_json, none="no events; #cal in the chat adds one")


@commands.command()
def approve(ctx: typer.Context, chat: ChatId, as_json: AsJson = False) -> None:
    """Let a chat use the bot.

    \b
    Example:
      holdfast c4lendar approve -- -1001234567890
    """
    done = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.approve_chat(by, chat), tenant_id=chat
    )
    ctx.obj.print_result(_chat(done), f"{done.title or chat} is approved", as_json=as_json)


@commands.command()
def revoke(ctx: typer.Context, chat: ChatId, as_json: AsJson = False) -> None:
    """Stop serving a chat; its events and accounts stay.

    \b
    Example:
      holdfast c4lendar revoke -- -1001234567890
    """
    done = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.revoke_chat(by, chat), tenant_id=chat
    )
    ctx.obj.print_result(_chat(done), f"{done.title or chat} is no longer approved", as_json=as_json)


@commands.command("time-zone")
def time_zone(
    ctx: typer.Context,
    chat: ChatId,
    zone: Annotated[str, typer.Argument(help="An IANA name, such as Europe/Berlin.")],
    as_json: AsJson = False,
) -> None:
    """Set the zone in which a chat's texts are read.

    \b
    Example:
      holdfast c4lendar time-zone -- -1001234567890 Europe/Berlin
    """
    done = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.set_time_zone(by, chat, time_zone=zone), tenant_id=chat
    )
    ctx.obj.print_result(_chat(done), f"{done.title or chat}: {done.time_zone}", as_json=as_json)


@commands.command()
def disconnect(
    ctx: typer.Context,
    chat: ChatId,
    account: Annotated[str, typer.Argument(metavar="SUB", help="The account's googleSub, from `accounts`.")],
    as_json: AsJson = False,
) -> None:
    """Disconnect an account from a chat; the grant ends at Google when no other chat uses it.

    \b
    Example:
      holdfast c4lendar disconnect -- -1001234567890 115678901234567890123
    """
    done = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.disconnect(by, account), tenant_id=chat
    )
    ctx.obj.print_result(_account(done), f"{done.google_email} is disconnected", as_json=as_json)


@commands.command()
def retry(
    ctx: typer.Context,
    chat: ChatId,
    event: Annotated[str, typer.Argument(metavar="UID", help="The event's uid, from `events --json`.")],
    as_json: AsJson = False,
) -> None:
    """Bring an event into the accounts that failed, now.

    \b
    Example:
      holdfast c4lendar retry -- -1001234567890 01JBZQ8F7VKPNX3QZ9M8J5K2W7
    """
    done = ctx.obj.operate_service(
        NAME, lambda operations, by: operations.retry_event(by, event), tenant_id=chat
    )
    ctx.obj.print_result({"uid": done.uid}, f"{done.title} is brought into its accounts", as_json=as_json)


@commands.command()
def parse(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="The text of an event.")],
    zone: Annotated[str, typer.Option("--time-zone", help="An IANA name.")] = "UTC",
    now: Annotated[datetime | None, typer.Option(help="The time to read it at; now by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the parser understands of a text.

    \b
    Example:
      holdfast c4lendar parse "team standup tomorrow 9am" --time-zone Europe/Berlin
    """
    here = ZoneInfo(find_zone(zone))
    at = now.replace(tzinfo=here) if now else datetime.now(UTC)
    response = parse_response(text, now=at, zone=here)
    said = response.question or f"{response.title}: {response.start} to {response.end}"
    ctx.obj.print_result(response, said, as_json=as_json)


@commands.command("import-kv")
def import_kv(
    ctx: typer.Context,
    dump: Annotated[Path, typer.Argument(help="A Workers KV bulk dump (JSON).")],
    as_json: AsJson = False,
) -> None:
    """Import a Workers KV dump of the former bot; safe to repeat, and the dump stays as it is.

    Tokens encrypted by the former bot need HOLDFAST_LEGACY_KEY; those in the open are encrypted here.

    \b
    Example:
      holdfast c4lendar import-kv dump.json
    """
    try:
        rows = read_pairs(dump.read_bytes())
    except OSError as fault:
        raise typer.BadParameter(f"{dump} can't be read: {fault.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise typer.BadParameter(f"{dump} is no KV dump, a JSON list of key and value: {fault}") from None

    async def act(operations: ChatOperations, by: Operator) -> KvReport:
        with progress_bar() as bar:
            task = bar.add_task("Importing", total=len(rows))
            return await operations.import_kv(by, rows, tell=lambda done, _: bar.update(task, completed=done))

    report = ctx.obj.operate_service(NAME, act)
    lines = [
        f"{chat}: {plural(one.accounts, 'account')}, {plural(one.events, 'event')},"
        f" {one.unchanged} there already"
        for chat, one in report.chats.items()
    ]
    lines += [f"skipped {count}: {reason}" for reason, count in report.skipped.items()]
    lines += [f"bad row {fault}" for fault in report.faults]
    ctx.obj.print_result(report, "\n".join(lines) or "the dump is empty", as_json=as_json)
    if report.faults:
        raise typer.Exit(1)


@commands.command("export-kv")
def export_kv(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(help="The file to write.")],
    tokens: Annotated[
        bool, typer.Option("--tokens", help="With the tokens, encrypted under HOLDFAST_LEGACY_KEY.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write chats' accounts and events in the layout of the former bot's Workers KV.

    \b
    Examples:
      holdfast c4lendar export-kv dump.json
      HOLDFAST_LEGACY_KEY=… holdfast c4lendar export-kv dump.json --tokens
    """
    pairs = ctx.obj.operate_service(NAME, lambda operations, by: operations.export_kv(by, tokens=tokens))
    target.touch(mode=0o600)
    target.write_bytes(msgspec.json.encode(pairs))
    ctx.obj.print_result({"pairs": len(pairs)}, f"{plural(len(pairs), 'pair')} in {target}", as_json=as_json)
