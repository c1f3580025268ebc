"""`holdfast gwi`: runs, usage and the audit trail of a tenant."""

import typer

from holdfast.services.gwi.commands import audit, runs, usage

commands = typer.Typer(
    help="Git With Intent: runs, usage and the audit trail of tenants.", no_args_is_help=True
)
commands.add_typer(runs.commands, name="runs")
commands.add_typer(usage.commands, name="usage")
commands.add_typer(audit.commands, name="audit")
