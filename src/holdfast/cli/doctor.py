"""`holdfast doctor`: check the settings, the machine, the store and the services; name what to do."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from holdfast.cli.checkup.issuers import issuers
from holdfast.cli.checkup.machine import machine
from holdfast.cli.checkup.schema import stored
from holdfast.cli.checkup.settings import settings
from holdfast.cli.context import AsJson, escape_control
from holdfast.config import load_config
from holdfast.errors import ConfigError, HoldfastError
from holdfast.logs import log_to_stderr
from holdfast.service import CheckResult


def doctor(
    integrity: Annotated[
        bool, typer.Option("--integrity", help="Check every page of a SQLite file, too: it takes a while.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the machine, the store and the services; name what to do.

    \b
    Examples:
      holdfast doctor
      holdfast doctor --integrity
      holdfast doctor --json | jq -r '.findings[] | select(.fine | not) | .remedy'

    Changes nothing. Exit code 0 when all is well, 1 when something is not.
    """
    log_to_stderr()
    findings = asyncio.run(_look(integrity=integrity))
    fine = all(finding.fine for finding in findings)
    if as_json:
        typer.echo(msgspec.json.encode({"fine": fine, "findings": findings}).decode())
    else:
        typer.echo(escape_control("\n".join(_line(finding) for finding in findings)))
    if not fine:
        raise typer.Exit(1)


async def _look(*, integrity: bool) -> list[CheckResult]:
    try:
        config = load_config()
    except ConfigError as fault:
        return [CheckResult("settings", False, fault.message, "correct that setting, then ask again")]
    findings = [CheckResult("settings", True, "they can be read"), *machine(config), *settings(config)]
    findings += [finding async for finding in issuers(config)]
    try:
        findings += [finding async for finding in stored(config, integrity=integrity)]
    except HoldfastError as fault:
        findings.append(
            CheckResult("store", False, fault.message, "see the message; it names what to change")
        )
    return findings


def _line(finding: CheckResult) -> str:
    if finding.fine:
        return f"  ok     {finding.name}: {finding.message}"
    return f"  FAULT  {finding.name}: {finding.message}\n         {finding.remedy}"
