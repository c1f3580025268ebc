"""`holdfast gwi candidates`: propose changes, vote on them, apply them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.services.gwi.candidate_revision import PatchRequest
from holdfast.services.gwi.commands.options import NAME, AsJson, Cursor, Limit, Tenant
from holdfast.services.gwi.domain.patches import FileChange
from holdfast.services.gwi.domain.votes import CandidateStatus, VoteDecision
from holdfast.services.gwi.models.work import Candidate

commands = typer.Typer(help="Propose changes, vote on them, apply them.", no_args_is_help=True)
CandidateId = Annotated[str, typer.Argument(metavar="CANDIDATE", help="As `candidates list` shows it.")]
Member = Annotated[str, typer.Option("--as", metavar="ID", help="The member whose vote it is.")]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="PATH=LOCAL", help="A file and its new content; may be repeated."),
]
Deleted = Annotated[
    list[str] | None, typer.Option("--delete", metavar="PATH", help="A file to delete; may be repeated.")
]
Message = Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="The commit message.")]


@commands.command("list")
def list_command(
    ctx: typer.Context,
    tenant: Tenant,
    status: Annotated[CandidateStatus | None, typer.Option(help="Candidates in this state.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    as_json: AsJson = False,
) -> None:
    """Show candidates, the newest first.

    \b
    Example:
      holdfast gwi candidates list --tenant gh-org-7 --status ready
    """
    page = ctx.obj.with_service(
        NAME, lambda gwi: gwi.candidates.page(tenant, status=status, limit=limit, cursor=cursor)
    )
    columns = ("id", "status", "risk", "approvals", "summary", "createdBy", "pullRequest", "failure")
    rows = [_row(one) for one in page.docs]
    ctx.obj.print_table(rows, columns, as_json=as_json, cursor=page.cursor, none="no candidates like this")


def _row(candidate: Candidate) -> dict[str, Any]:
    approvals = sum(one.decision == "approved" for one in candidate.approvals)
    return {
        "id": candidate.id, "status": "applying" if candidate.applying else candidate.status,
        "risk": candidate.risk.level, "approvals": f"{approvals} of {candidate.required_approvals}",
        "summary": candidate.plan.summary, "createdBy": candidate.created_by,
        "workItemId": candidate.work_item_id, "patchHash": candidate.patch_hash, "runId": candidate.run_id,
        "pullRequest": candidate.resulting_pr_url, "failure": candidate.failure_reason,
    }  # fmt: skip


@commands.command("show")
def show_command(ctx: typer.Context, candidate: CandidateId, tenant: Tenant, as_json: AsJson = False) -> None:
    """Show a candidate with its risk, votes and receipt.

    \b
    Example:
      holdfast gwi candidates show cand-m5v2kxf-g3h2i1j0 --tenant gh-org-7
    """
    found: Candidate = ctx.obj.with_service(NAME, lambda gwi: gwi.candidates.get(tenant, candidate))
    lines = [f"{found.plan.summary}: {found.status}, risk {found.risk.level} ({found.risk.score})"]
    lines += [f"  risk: {one.description}" for one in found.risk.factors]
    lines += [f"  {one.decision} by {one.user_id} {one.comment or ''}".rstrip() for one in found.approvals]
    lines += [f"  {one.action} {one.file}" for one in (found.patchset.changes if found.patchset else [])]
    ctx.obj.print_result(msgspec.to_builtins(found), "\n".join(lines), as_json=as_json)


@commands.command("propose")
def propose_command(
    ctx: typer.Context,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="The work item.")],
    tenant: Tenant,
    file: Files = None,
    delete: Deleted = None,
    message: Message = "",
    as_json: AsJson = False,
) -> None:
    """Propose a change for a work item; without files it is a draft.

    \b
    Example:
      holdfast gwi candidates propose wi-1 --tenant gh-org-7 --file src/cart.py=cart.py -m "Fix the cart"
    """
    patch = _patch(file, delete, message)
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.candidates.create(by, item, patch=patch), tenant_id=tenant
    )
    ctx.obj.print_result(_row(done), f"{done.id} is {done.status}", as_json=as_json)


@commands.command("revise")
def revise_command(
    ctx: typer.Context,
    candidate: CandidateId,
    tenant: Tenant,
    file: Files = None,
    delete: Deleted = None,
    message: Message = "",
    as_json: AsJson = False,
) -> None:
    """Give a candidate another patch; votes on the former one are dropped.

    \b
    Example:
      holdfast gwi candidates revise cand-1 --tenant gh-org-7 --file src/cart.py=cart.py -m "Mend it better"
    """
    patch = _patch(file, delete, message)
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.candidates.revise(by, candidate, patch=patch), tenant_id=tenant
    )
    ctx.obj.print_result(_row(done), f"{done.id} is {done.status}", as_json=as_json)


@commands.command("vote")
def vote_command(
    ctx: typer.Context,
    candidate: CandidateId,
    decision: Annotated[VoteDecision, typer.Argument(help="What you think of it.")],
    tenant: Tenant,
    member: Member,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Why; people see it.")] = "",
    patch_hash: Annotated[str, typer.Option(metavar="HASH", help="Only if the patch is still this.")] = "",
    as_json: AsJson = False,
) -> None:
    """Vote on a candidate in the name of a member.

    \b
    Example:
      holdfast gwi candidates vote cand-1 approved --tenant gh-org-7 --as oidc:dean@example.com
    """
    done = ctx.obj.operate_service(
        NAME,
        lambda gwi, by: gwi.candidates.vote(
            by, candidate, decision=decision, comment=comment, seen_hash=patch_hash, user_id=member
        ),
        tenant_id=tenant,
    )
    ctx.obj.print_result(_row(done), f"{done.id} is {done.status}", as_json=as_json)


@commands.command("revoke")
def revoke_command(
    ctx: typer.Context, candidate: CandidateId, tenant: Tenant, member: Member, as_json: AsJson = False
) -> None:
    """Take a member's approval back, until the candidate is applied.

    \b
    Example:
      holdfast gwi candidates revoke cand-1 --tenant gh-org-7 --as oidc:dean@example.com
    """
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.candidates.revoke_vote(by, candidate, user_id=member), tenant_id=tenant
    )
    ctx.obj.print_result(_row(done), f"{done.id} is {done.status}", as_json=as_json)


@commands.command("apply")
def apply_command(
    ctx: typer.Context, candidate: CandidateId, tenant: Tenant, as_json: AsJson = False
) -> None:
    """Start the run that makes the pull request of an approved candidate.

    \b
    Example:
      holdfast gwi candidates apply cand-1 --tenant gh-org-7
    """
    done = ctx.obj.operate_service(
        NAME, lambda gwi, by: gwi.candidates.apply(by, candidate, source="cli"), tenant_id=tenant
    )
    ctx.obj.print_result(_row(done), f"{done.id} is applied by {done.run_id}", as_json=as_json)


def _patch(files: list[str] | None, deleted: list[str] | None, message: str) -> PatchRequest | None:
    """The patch of these files; None without any."""
    if not files and not deleted:
        return None
    if not message:
        raise typer.BadParameter("say what the change does with --message")
    changes = [FileChange(file=path, action="delete") for path in deleted or ()]
    for one in files or ():
        path, _, local = one.partition("=")
        try:
            content = Path(local or path).read_text()
        except (OSError, UnicodeDecodeError) as fault:
            raise typer.BadParameter(f"{local or path} can't be read as text: {fault}") from None
        changes.append(FileChange(file=path, action="modify", content=content))
    return PatchRequest(changes=changes, commit_message=message)
