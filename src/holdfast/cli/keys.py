"""`holdfast keys`: make a key, and bring what is kept to the current one."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from holdfast.app import open_store
from holdfast.cli.context import AsJson, print_result
from holdfast.config import load_config
from holdfast.kit.vault import Rotation, new_key, rotate
from holdfast.logs import log_to_stderr
from holdfast.runtime import documents_of, find_services, sealed_fields, vault_of

commands = typer.Typer(no_args_is_help=True)


@commands.command("new")
def new_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="A name that no key had before.")],
    as_json: AsJson = False,
) -> None:
    """Make a key, as HOLDFAST_KEYS takes it; it is shown once and kept nowhere.

    \b
    Example:
      export HOLDFAST_KEYS="$(holdfast keys new 2026-11),$HOLDFAST_KEYS"

    The first key seals; all of them open. Take an old one out once `holdfast keys rotate` is through.
    While HOLDFAST_KEYS is not set, the key is in the file `keys` of the home: put that one after the new one.
    """
    key = new_key(key_id)
    print_result({"key": key}, key, as_json=as_json)


@commands.command("rotate")
def rotate_command(as_json: AsJson = False) -> None:
    """Seal everything again under the current key, while it is in use; goes on after a crash.

    \b
    Example:
      holdfast keys rotate && echo "the old key may go"

    Exit code 1 when something could not be opened with any of the keys.
    """

    async def run() -> list[Rotation]:
        config, services = load_config(), find_services()
        # Not the services themselves: what they seal must be reached even where one could not start.
        store = await open_store(config.store, documents_of(services), env=config.prefix)
        try:
            await store.migrate()
            vault = vault_of(config)
            return [
                await rotate(vault, kind, fields=fields, store=store, report=_progress)
                for kind, fields in sealed_fields(services).items()
            ]
        finally:
            await store.close()

    log_to_stderr()
    done = asyncio.run(run())
    unreadable = [name for rotation in done for name in rotation.unreadable]
    lines = [f"{one.collection}: {one.resealed} sealed with {one.key_id}" for one in done]
    lines += [f"can't be opened: {name}" for name in unreadable]
    print_result({"rotations": done}, "\n".join(lines), as_json=as_json)
    if unreadable:
        raise typer.Exit(1)


def _progress(rotation: Rotation) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(
            f"\r{rotation.collection}: walk {rotation.walk}, {rotation.seen_in_walk} seen, "
            f"{rotation.resealed} sealed anew"
        )
        if rotation.state == "finished":
            sys.stderr.write("\n")
