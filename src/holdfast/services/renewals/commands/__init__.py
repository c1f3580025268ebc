"""`holdfast renewals`: who will not renew, why, and telling the RMS."""

from collections.abc import Callable

import typer

from holdfast.services.renewals.commands import data, deliveries, endpoints, reports, rules

commands = typer.Typer(help="Who will not renew, why, and telling the RMS.", no_args_is_help=True)

_COMMANDS: dict[str, Callable[..., None]] = {
    "import": data.import_command, "source": data.source_command,
    "sample": data.sample_command, "calculate": data.calculate_command,
    "portfolio": reports.portfolio_command, "risk": reports.risk_command,
    "runs": reports.runs_command, "history": reports.history_command,
    "trigger": deliveries.trigger_command, "deliveries": deliveries.deliveries_command,
    "delivery": deliveries.delivery_command, "what-if": rules.what_if_command,
    "outcome": reports.outcome_command, "calibration": reports.calibration_command,
}  # fmt: skip
for name, command in _COMMANDS.items():
    commands.command(name)(command)
commands.add_typer(deliveries.dlq, name="dlq")
commands.add_typer(endpoints.endpoints, name="endpoints")
commands.add_typer(rules.rules, name="rules")
