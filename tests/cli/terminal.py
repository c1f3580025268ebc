"""What a person types, run as `main` runs it, without a process for each line."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import structlog
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.errors import HoldfastError


class Typed(NamedTuple):
    """How a command ended and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def typed(home: Path, *words: str, **environment: str) -> Typed:
    """Type `holdfast WORDS` in this folder; what is no error we know is raised."""
    before = structlog.get_config()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name, value in environment.items():
            patch.setenv(name, value)
        told = CliRunner().invoke(app, list(words))
    structlog.configure(**before)
    if isinstance(told.exception, HoldfastError):
        return Typed(1, told.stdout, f"{told.stderr}holdfast: {told.exception.message}\n")
    if not isinstance(told.exception, SystemExit | None):
        raise told.exception
    return Typed(told.exit_code, told.stdout, told.stderr)
