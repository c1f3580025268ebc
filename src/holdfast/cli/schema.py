"""`holdfast schema`: export the declared collections, and bring a store to what they say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from holdfast import __version__
from holdfast.app import ddl, open_store
from holdfast.cli.document_classes import document_classes
from holdfast.config import load_config
from holdfast.errors import ConfigError, IncompatibleReleaseError
from holdfast.kit.processes import PROCESS_DOCUMENTS, ProcessRegistry, describe
from holdfast.model.document import Document, schema_of
from holdfast.model.export import FORMATS, export
from holdfast.plural import plural
from holdfast.store.catalog import Catalog
from holdfast.store.port import MigrationRequest
from holdfast.store.store import Store

T = TypeVar("T")

commands = typer.Typer(no_args_is_help=True)

_DIALECTS: Final = {"sql-sqlite": "sqlite", "sql-postgres": "postgres"}
_DROP: Final = MigrationRequest(drop=True)
DEPLOY_COMMANDS: Final = (
    "holdfast schema export --format firestore-indexes --out firestore.indexes.json",
    "holdfast schema export --format firestore-rules --out firestore.rules",
    "firebase deploy --only firestore:indexes,firestore:rules",
    "holdfast schema confirm",
)
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
        str, typer.Option(metavar="FORMAT", callback=_known_format, help=f"One of: {', '.join(ALL_FORMATS)}.")
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
    """Tell what `migrate` would do to the store, and what `prune` would drop; changes nothing.

    \b
    Examples:
      holdfast schema diff --models shop.models
      holdfast schema diff --store sqlite:///shop.db --check
      holdfast schema diff --json | jq '.changes[]'

    Exit code 0; with --check 1 when the store differs. 2 is wrong usage.
    """
    changes, unused = _on_store(_diff, models, store)
    undeployed = _on_store(_undeployed, models, store)
    _tell(
        changes, "nothing to do: the store is as declared", as_json=as_json, unused=unused,
        undeployed=undeployed,
    )  # fmt: skip
    if check and changes:
        raise typer.Exit(1)


@commands.command("migrate")
def migrate_command(models: _Models = None, store: _StoreUrl = None, as_json: _AsJson = False) -> None:
    """Bring the store to what the classes declare, while it is in use.

    Safe to repeat; when it is interrupted, the next run goes on. It drops nothing, and is refused where it
    would break a process of another release that is at work.

    \b
    Examples:
      holdfast schema migrate --models shop.models
      holdfast schema migrate --store postgresql://localhost/shop
    """
    changes, undeployed = _on_store(_migrate, models, store)
    _tell(changes, "nothing to do: the store is as declared", as_json=as_json, undeployed=undeployed)


@commands.command("confirm")
def confirm_command(models: _Models = None, store: _StoreUrl = None, as_json: _AsJson = False) -> None:
    """Record that the exported Firestore indexes and rules are deployed, which Firestore does not tell.

    \b
    Example:
      holdfast schema confirm --store firestore://my-project
    """
    confirmed = _on_store(lambda opened: opened.undeployed(confirm=True), models, store)
    _tell(confirmed, "nothing to confirm", as_json=as_json)


@commands.command("prune")
def prune_command(
    models: _Models = None,
    store: _StoreUrl = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be dropped.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Drop the columns, indexes and list tables that no class declares any more.

    Documents lose nothing. Refused while processes of another release are at work; an older release that is
    started later adds and fills what it needs.

    \b
    Examples:
      holdfast schema prune --dry-run
      holdfast schema prune --yes
    """
    unused = _on_store(_prunable, models, store)
    if unused and not dry_run:
        if not yes:
            typer.echo("\n".join(unused), err=True)
            typer.confirm(f"Do {plural(len(unused), 'step')}?", abort=True, err=True)
        unused = _on_store(_prune, models, store)
    _tell(unused, "nothing to drop: everything stored is declared", as_json=as_json)


async def _diff(store: Store) -> tuple[list[str], list[str]]:
    return await store.diff(), await store.diff(_DROP)


async def _undeployed(store: Store) -> list[str]:
    return await store.undeployed()


async def _migrate(store: Store) -> tuple[list[str], list[str]]:
    registry = ProcessRegistry(store, version=__version__)
    steps = await registry.start()
    await registry.close()
    return steps, await store.undeployed()


async def _prunable(store: Store) -> list[str]:
    if waiting := await store.diff():
        raise ConfigError(
            f"the store is not as declared yet ({waiting[0]}): run `holdfast schema migrate` first"
        )
    return await store.diff(_DROP)


async def _prune(store: Store) -> list[str]:
    if others := await ProcessRegistry(store, version=__version__).other_releases():
        raise IncompatibleReleaseError(
            f"processes of another release use what would be dropped: {', '.join(map(describe, others))}; "
            "stop them, or wait until the roll-out has ended"
        )
    return await store.migrate(_DROP)


def _exported(classes: Sequence[type[Document]], format: str, env: str) -> str:
    catalog = Catalog(classes, env)
    dialect = _DIALECTS.get(format)
    if dialect is None:
        return export([schema_of(cls) for cls in classes], format, env=env)
    return "".join(f"{statement.strip().removesuffix(';')};\n" for statement in ddl(dialect, catalog))


def _on_store(act: Callable[[Store], Awaitable[T]], models: list[str] | None, url: str | None) -> T:
    own: list[type[Document]] = [] if act is _diff else list(PROCESS_DOCUMENTS)
    classes = [*document_classes(models or []), *own]
    config = load_config({"store": url})

    async def run() -> T:
        opened = await open_store(config.store, classes, env=config.prefix)
        try:
            return await act(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def _tell(
    changes: list[str],
    otherwise: str,
    *,
    as_json: bool,
    unused: Sequence[str] = (),
    undeployed: Sequence[str] = (),
) -> None:
    if as_json:
        more = {"unused": unused, "undeployed": undeployed}
        answer: dict[str, Any] = {"changes": changes, **{name: some for name, some in more.items() if some}}
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    typer.echo("\n".join(changes) if changes else otherwise)
    if unused:
        typer.echo("\nno longer declared; `holdfast schema prune` would:\n" + "\n".join(unused))
    if undeployed:
        typer.echo("\ndeclared, and not confirmed as deployed:\n" + "\n".join(undeployed))
        typer.echo("\ndeploy them, then confirm:\n" + "\n".join(DEPLOY_COMMANDS))
