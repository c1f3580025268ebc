"""`holdfast documents`: look through what is kept, by the indexes that collections declare."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.context import AsJson, Cursor, Limit, Tenants, print_result, print_table, with_runtime
from holdfast.errors import InvalidError
from holdfast.kit import ALL_TENANTS
from holdfast.model.access import SERVICE
from holdfast.operations import documents
from holdfast.runtime import Runtime

commands = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="COLLECTION", help="As `documents collections` shows it.")]


def _pairs(words: list[str] | None) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words or () if "=" in word)


def _checked(words: list[str] | None) -> list[str] | None:
    if len(_pairs(words)) < len(words or ()):
        raise typer.BadParameter("write each as NAME=VALUE, every name once")
    return words


@commands.command("collections")
def collections_command(tenant: Tenants = ALL_TENANTS, as_json: AsJson = False) -> None:
    """Show the collections there are, and the indexes each can be listed by.

    \b
    Examples:
      holdfast documents collections
      holdfast documents collections --json | jq -r '.items[] | select(.of == "renewals") | .name'
    """

    async def act(runtime: Runtime) -> list[dict[str, Any]]:
        return [
            {"name": one.name, "of": one.owner, "by": " ".join(one.indexes) or "-", "keeps": one.summary}
            for one in documents.list_collections(runtime, SERVICE, tenant).items
        ]

    print_table(with_runtime(act, services=None), ("name", "of", "by", "keeps"), as_json=as_json)


@commands.command("list")
def list_command(
    collection: _Name,
    by: Annotated[
        str, typer.Option(metavar="INDEX", help="As `documents collections` shows it. Default: the first.")
    ] = "",
    equal: Annotated[
        list[str] | None,
        typer.Option("--is", metavar="FIELD=VALUE", callback=_checked, help="Only with this value."),
    ] = None,
    under: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ID", callback=_checked, help="Under this document; for sub-collections."),
    ] = None,
    tenant: Tenants = ALL_TENANTS,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show documents in the order of an index, with secrets masked. Values are given for its first fields.

    \b
    Examples:
      holdfast documents list holdfast_runs --by status_createdAt_desc --is status=failed
      holdfast documents list holdfast_runs__holdfast_run_steps --under run_id=run-mhz1k0-4f2a9c --json
    """
    page = with_runtime(
        lambda runtime: documents.list_documents(
            runtime, SERVICE, tenant, collection=collection, index=by, parents=_pairs(under),
            values=_pairs(equal), limit=limit, cursor=cursor,
        ),
        services=None,
    )  # fmt: skip
    every = tenant == ALL_TENANTS
    columns = ("_id", *(["_tenant"] if every else []), *page.columns)
    none, tenant = "no documents like this", "" if every else tenant
    print_table(page.items, columns, as_json=as_json, cursor=page.cursor, none=none, tenant=tenant)


@commands.command("show")
def show_command(
    collection: _Name,
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Its id; for sub-collections, its parents' ids first."),
    ],
    tenant: Tenants = ALL_TENANTS,
    as_json: AsJson = False,
) -> None:
    """Show one document as it is stored, with secrets masked.

    \b
    Examples:
      holdfast documents show holdfast_endpoints rms --tenant acme
      holdfast documents show holdfast_runs__holdfast_run_steps run-mhz1k0-4f2a9c step-001-saw
    """
    try:
        document = with_runtime(
            lambda runtime: documents.get_document(runtime, SERVICE, tenant, collection=collection, ids=ids),
            services=None,
        )
    except InvalidError as fault:
        raise typer.BadParameter(fault.message, param_hint="ID") from None
    print_result(document, msgspec.json.format(msgspec.json.encode(document)).decode(), as_json=as_json)
