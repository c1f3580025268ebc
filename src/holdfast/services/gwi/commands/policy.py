"""`holdfast gwi policy`: show, validate, save."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.services.gwi.commands.options import NAME, AsJson, Tenant
from holdfast.services.gwi.domain.policy import policy_errors
from holdfast.services.gwi.operations.policies import PolicyChange

commands = typer.Typer(help="The policy of a tenant.", no_args_is_help=True)
PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="A JSON file with the policy.")]


@commands.command("show")
def show_policy(ctx: typer.Context, tenant: Tenant, as_json: AsJson = False) -> None:
    """Print the policy's document; as JSON with its version and errors.

    \b
    Example:
      holdfast gwi policy show --tenant gh-org-7 > policy.json
    """
    found = ctx.obj.with_service(NAME, lambda gwi: gwi.policies.get(tenant))
    text = msgspec.json.format(msgspec.json.encode(found.document), indent=2).decode()
    ctx.obj.print_result(found, text, as_json=as_json)


@commands.command()
def validate(ctx: typer.Context, file: PolicyFile, as_json: AsJson = False) -> None:
    """Check a policy without saving it.

    \b
    Example:
      holdfast gwi policy validate policy.json
    """
    errors = policy_errors(_document(file))
    ctx.obj.print_result(
        {"valid": not errors, "errors": errors}, "; ".join(errors) or "valid", as_json=as_json
    )
    if errors:
        raise typer.Exit(1)


@commands.command()
def save(ctx: typer.Context, tenant: Tenant, file: PolicyFile, as_json: AsJson = False) -> None:
    """Save a policy as the next version.

    \b
    Example:
      holdfast gwi policy save --tenant gh-org-7 policy.json
    """
    document = _document(file)
    saved = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.policies.save(by, PolicyChange(document=document)), tenant_id=tenant
    )
    state = "valid" if saved.valid else f"not valid: {'; '.join(saved.validation_errors or [])}"
    ctx.obj.print_result(saved, f"version {saved.version} is {state}", as_json=as_json)


def _document(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, OSError) as fault:
        raise typer.BadParameter(f"{file} holds no JSON object: {fault}") from None
