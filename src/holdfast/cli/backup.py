"""`holdfast backup`: copy the store to a new file while others read and write it (SQLite)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.app import back_up
from holdfast.cli.context import AsJson, print_result, with_runtime
from holdfast.config import load_config
from holdfast.errors import ConfigError
from holdfast.runtime import Runtime
from holdfast.store_copy import local_file


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet.")],
    as_json: AsJson = False,
) -> None:
    """Copy the store to a new file while others read and write it (SQLite).

    \b
    Examples:
      holdfast backup backups/2026-11-15.db
      HOLDFAST_STORE=sqlite:///backups/2026-11-15.db holdfast doctor

    To restore, stop what uses the store and put the copy in its place. The copy holds sealed secrets;
    the keys that open them (HOLDFAST_KEYS, or the file `keys` in the home folder) are not in it.
    """

    _refuse_nothing()

    async def act(runtime: Runtime) -> int:
        try:
            return await back_up(runtime.store, file)
        except OSError as fault:
            raise ConfigError(f"can't write {file}: {fault.strerror}") from None

    size = with_runtime(act)
    print_result({"file": str(file), "bytes": size}, f"{file}: {size:,} bytes", as_json=as_json)


def _refuse_nothing() -> None:
    """Opening a store makes it where there is none, and the copy of that would look like a backup."""
    kept = local_file(load_config().store)
    if kept is not None and not kept.exists():
        raise ConfigError(f"there is no store at {kept}: check HOLDFAST_STORE and HOLDFAST_HOME", "store")
