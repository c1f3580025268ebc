"""A progress bar for commands that take long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a bar on a person's terminal; nothing where the output is for programs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown, off = Console(stderr=True), not sys.stderr.isatty()
    bar = Progress(*columns, console=shown, disable=off, transient=True)
    # Some releases of rich end a bar that was never shown with an empty line.
    with nullcontext() if off else bar:
        yield bar
