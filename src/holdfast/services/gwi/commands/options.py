"""Options that the service's commands share."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

NAME: Final = "gwi"

Tenant = Annotated[str, typer.Option(metavar="ID", help="The tenant, such as gh-org-7.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="At most so many.")]
Cursor = Annotated[str | None, typer.Option(metavar="TEXT", help="Go on where the last page ended.")]
T = TypeVar("T")


def convert_options(values: dict[str, Any], kind: type[T]) -> T:
    """The options as what an operation takes; a usage error where one does not fit."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as fault:
        raise typer.BadParameter(str(fault)) from None
