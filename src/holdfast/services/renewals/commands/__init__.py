"""`holdfast renewals`: who will not renew, why, and telling the RMS."""

from collections.abc import Callable

import typer

from holdfast.services.renewals.commands import data, endpoints, looking, rules, sending

commands = typer.Typer(help="Who will not renew, why, and telling the RMS.", no_args_is_help=True)

_COMMANDS: dict[str, Callable[..., None]] = {
    "import": data.import_command, "source": data.source_command,
    "sample": data.sample_command, "calculate": data.calculate_command,
    "portfolio": looking.portfolio_command, "risk": looking.risk_command,
    "runs": looking.runs_command, "history": looking.history_command,
    "trigger": sending.trigger_command, "deliveries": sending.deliveries_command,
    "delivery": sending.delivery_command, "what-if": rules.what_if_command,
    "outcome": looking.outcome_command, "calibration": looking.calibration_command,
}  # fmt: skip
for name, command in _COMMANDS.items():
    commands.command(name)(command)
commands.add_typer(sending.dlq, name="dlq")
commands.add_typer(endpoints.endpoints, name="endpoints")
commands.add_typer(rules.rules, name="rules")
