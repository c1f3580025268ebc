"""`holdfast schema`: export the declared collections, and bring a store to what they say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.app import ddl, open_store
from holdfast.cli.document_classes import document_classes
from holdfast.config import load_config
from holdfast.errors import ConfigError
from holdfast.model.document import Document, schema_of
from holdfast.model.export import FORMATS, export
from holdfast.store.catalog import Catalog
from holdfast.store.store import Store

commands = typer.Typer(no_args_is_help=True)

_DIALECTS: Final = {"sql-sqlite": "sqlite", "sql-postgres": "postgres"}
ALL_FORMATS: Final = (*_DIALECTS, *FORMATS)


def _known_format(format: str) -> str:
    if format not in ALL_FORMATS:
        raise typer.BadParameter(f"{format!r} is none of {', '.join(ALL_FORMATS)}")
    return format


_Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        metavar="MODULE[:NAME]",
        help="A module with document classes, or one class in it; may be repeated. Default: all services'.",
    ),
]
_StoreUrl = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="The store; else the configured one.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@commands.command("export")
def export_command(
    format: Annotated[
        str,
        typer.Option(metavar="FORMAT", callback=_known_format, help=f"One of: {', '.join(ALL_FORMATS)}."),
    ],
    models: _Models = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of printing.")] = None,
    env: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="What {env} in collection names becomes.")
    ] = None,
) -> None:
    """Write the declared collections in another format.

    \b
    Examples:
      holdfast schema export --format markdown --models shop.models
      holdfast schema export --format firestore-rules --out firestore.rules
      holdfast schema export --format sql-sqlite --models shop.models:Order

    \b
    Formats:
      sql-sqlite, sql-postgres  tables and indexes as the engines make them
      firestore-indexes         firestore.indexes.json
      firestore-rules           firestore.rules, from the access rules
      json-schema               draft 2020-12, one $defs entry per document
      typescript                an interface per document
      markdown                  tables and Mermaid diagrams for people

    The same declarations always give the same text.
    """
    classes = document_classes(models or [])
    text = _exported(classes, format, env or load_config().prefix)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"can't write {out}: {fault.strerror}") from None


@commands.command("diff")
def diff_command(
    models: _Models = None,
    store: _StoreUrl = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when there is something to do.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Tell what `migrate` would do to the store; changes nothing.

    \b
    Examples:
      holdfast schema diff --models shop.models
      holdfast schema diff --store sqlite:///shop.db --check
      holdfast schema diff --json | jq '.changes[]'

    Exit code 0; with --check 1 when the store differs. 2 is wrong usage.
    """
    changes = _on_store(lambda opened: opened.diff(), models, store)
    _tell(changes, "nothing to do: the store is as declared", as_json=as_json)
    if check and changes:
        raise typer.Exit(1)


@commands.command("migrate")
def migrate_command(models: _Models = None, store: _StoreUrl = None, as_json: _AsJson = False) -> None:
    """Bring the store to what the classes declare, while it is in use.

    Safe to repeat; when it is interrupted, the next run goes on.

    \b
    Examples:
      holdfast schema migrate --models shop.models
      holdfast schema migrate --store postgresql://localhost/shop
    """
    changes = _on_store(lambda opened: opened.migrate(), models, store)
    _tell(changes, "nothing to do: the store is as declared", as_json=as_json)


def _exported(classes: Sequence[type[Document]], format: str, env: str) -> str:
    catalog = Catalog(classes, env)
    dialect = _DIALECTS.get(format)
    if dialect is None:
        return export([schema_of(cls) for cls in classes], format, env=env)
    return "".join(f"{statement.strip().removesuffix(';')};\n" for statement in ddl(dialect, catalog))


def _on_store(
    act: Callable[[Store], Awaitable[list[str]]], models: list[str] | None, url: str | None
) -> list[str]:
    classes = document_classes(models or [])
    config = load_config({"store": url})

    async def run() -> list[str]:
        opened = await open_store(config.store, classes, env=config.prefix)
        try:
            return await act(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def _tell(changes: list[str], otherwise: str, *, as_json: bool) -> None:
    if as_json:
        answer: dict[str, Any] = {"changes": changes}
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    typer.echo("\n".join(changes) if changes else otherwise)
