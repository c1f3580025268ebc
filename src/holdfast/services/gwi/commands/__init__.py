"""`holdfast gwi`: the work of a tenant, its runs, usage and audit trail."""

import typer

from holdfast.services.gwi.commands import audit, candidates, queue, runs, signals, usage

commands = typer.Typer(
    help="Git With Intent: work, runs, usage and the audit trail of tenants.", no_args_is_help=True
)
commands.add_typer(signals.commands, name="signals")
commands.add_typer(queue.commands, name="queue")
commands.add_typer(candidates.commands, name="candidates")
commands.add_typer(runs.commands, name="runs")
commands.add_typer(usage.commands, name="usage")
commands.add_typer(audit.commands, name="audit")
