"""`holdfast renewals`: who will not renew, why, and sending them to the RMS."""

from collections.abc import Callable

import typer

from holdfast.services.renewals.commands import data, reports, rules, triggers, withdrawals

commands = typer.Typer(help="Who will not renew, why, and sending them to the RMS.", no_args_is_help=True)

_COMMANDS: dict[str, Callable[..., None]] = {
    "import": data.import_command, "source": data.source_command,
    "sample": data.sample_command, "calculate": data.calculate_command,
    "withdraw": withdrawals.withdraw_command,
    "portfolio": reports.portfolio_command, "risk": reports.risk_command,
    "runs": reports.runs_command, "history": reports.history_command,
    "trigger": triggers.trigger_command, "what-if": rules.what_if_command,
    "outcome": reports.outcome_command, "calibration": reports.calibration_command,
}  # fmt: skip
for name, command in _COMMANDS.items():
    commands.command(name)(command)
commands.add_typer(rules.rules, name="rules")
