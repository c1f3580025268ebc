"""`holdfast documents`: look through what is kept, by the indexes that collections declare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.context import (
    PLATFORM,
    AsJson,
    Cursor,
    Limit,
    Tenant,
    print_result,
    print_table,
    with_runtime,
)
from holdfast.errors import NotFoundError
from holdfast.model.access import SERVICE
from holdfast.runtime import Runtime
from holdfast.runtime.document_browser import Collection, DocumentBrowser

commands = typer.Typer(no_args_is_help=True)

_Name = Annotated[str, typer.Argument(metavar="COLLECTION", help="As `documents collections` shows it.")]


def _pairs(words: list[str] | None) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words or () if "=" in word)


def _checked(words: list[str] | None) -> list[str] | None:
    if len(_pairs(words)) < len(words or ()):
        raise typer.BadParameter("write each as NAME=VALUE, every name once")
    return words


@commands.command("collections")
def collections_command(tenant: Tenant = PLATFORM, as_json: AsJson = False) -> None:
    """Show the collections there are, and the ways each can be looked through.

    \b
    Examples:
      holdfast documents collections
      holdfast documents collections --json | jq -r '.items[] | select(.of == "renewals") | .name'
    """

    async def act(runtime: Runtime) -> list[dict[str, Any]]:
        there = DocumentBrowser(runtime).collections(SERVICE, tenant)
        return [
            {"name": c.name, "of": c.owner, "by": " ".join(c.indexes) or "-", "keeps": c.summary}
            for c in there
        ]

    print_table(with_runtime(act, services=None), ("name", "of", "by", "keeps"), as_json=as_json)


@commands.command("list")
def list_command(
    collection: _Name,
    by: Annotated[
        str, typer.Option(metavar="WAY", help="As `documents collections` shows it; the first unless said.")
    ] = "",
    equal: Annotated[
        list[str] | None,
        typer.Option("--is", metavar="FIELD=VALUE", callback=_checked, help="Only with this value."),
    ] = None,
    under: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ID", callback=_checked, help="Under this document; for sub-collections."),
    ] = None,
    tenant: Tenant = PLATFORM,
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

    async def act(runtime: Runtime) -> tuple[list[dict[str, Any]], list[str], str | None]:
        documents = DocumentBrowser(runtime)
        found = documents.collection(SERVICE, tenant, collection)
        way = found.find_index(by)
        if way is None:
            raise NotFoundError(f"no index lists {collection}; `holdfast documents show` opens one by its id")
        query = found.query(way, parents=_pairs(under), values=_pairs(equal))
        page = await documents.store_for(found, tenant).query(query.limit(limit).after(cursor))
        columns = found.columns(way)
        rows = [found.row(one, columns) for one in page.items]
        return [{"_id": "/".join(one.ids.values()), **one.fields} for one in rows], columns, page.cursor

    rows, columns, after = with_runtime(act, services=None)
    print_table(rows, ("_id", *columns), as_json=as_json, cursor=after, none="no documents like this")


@commands.command("show")
def show_command(
    collection: _Name,
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="Its id; for sub-collections, its parents' ids first."),
    ],
    tenant: Tenant = PLATFORM,
    as_json: AsJson = False,
) -> None:
    """Show one document as it is stored, with secrets masked.

    \b
    Examples:
      holdfast documents show holdfast_endpoints rms --tenant acme
      holdfast documents show holdfast_runs__holdfast_run_steps run-mhz1k0-4f2a9c step-001-saw
    """

    async def act(runtime: Runtime) -> dict[str, Any]:
        documents = DocumentBrowser(runtime)
        found = documents.collection(SERVICE, tenant, collection)
        return found.redact(await documents.document(found, tenant, ids=_named(found, ids)))

    shown = with_runtime(act, services=None)
    print_result(shown, msgspec.json.format(msgspec.json.encode(shown)).decode(), as_json=as_json)


def _named(collection: Collection, ids: Sequence[str]) -> dict[str, str]:
    names = collection.schema.path.parameters
    if len(ids) != len(names):
        raise typer.BadParameter(
            f"{collection.name} has {len(names)} ids: {', '.join(names)}", param_hint="ID"
        )
    return dict(zip(names, ids, strict=True))
