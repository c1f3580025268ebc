"""`holdfast gwi`: the work of a tenant, its runs, usage and audit trail."""

import typer

from holdfast.services.gwi.commands import (
    audit,
    candidates,
    members,
    policy,
    queue,
    repos,
    runs,
    signals,
    tenants,
    usage,
)

commands = typer.Typer(
    help="Git With Intent: tenants, their work, runs, usage and audit trail.", no_args_is_help=True
)
commands.add_typer(tenants.commands, name="tenants")
commands.add_typer(members.commands, name="members")
commands.add_typer(repos.commands, name="repos")
commands.add_typer(policy.commands, name="policy")
commands.add_typer(signals.commands, name="signals")
commands.add_typer(queue.commands, name="queue")
commands.add_typer(candidates.commands, name="candidates")
commands.add_typer(runs.commands, name="runs")
commands.add_typer(usage.commands, name="usage")
commands.add_typer(audit.commands, name="audit")
