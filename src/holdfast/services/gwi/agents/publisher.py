"""The last step of a run: what it found becomes a comment, a branch with a pull request, or a push.

Each write at GitHub can be repeated, so a step that a crash interrupted makes nothing a second time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.services.gwi.agents.interface import AgentTask
from holdfast.services.gwi.domain.changes import PreparedChange, Publication
from holdfast.services.gwi.models.runs import RunEffect


class Published(msgspec.Struct, kw_only=True):
    """What a run did at GitHub."""

    output: dict[str, Any]
    effects: list[RunEffect] = []


async def publish(task: AgentTask, how: Publication, *, lines: list[str]) -> Published:
    """Publish a run's change and tell its topic; `lines` are the findings of its agents."""
    effects: list[RunEffect] = []
    output: dict[str, Any] = {"publication": how}
    change = task.change
    if change is not None and how in ("branch", "push"):
        sha = await task.host.commit(change, at=task.run.created_at)
        output["commit"] = sha
        effects += await (_push if how == "push" else _branch)(task, change, sha)
        output["prUrl"] = effects[-1].url
    number = task.topic.number
    if number is not None:
        url = await task.host.comment(number, _comment(task, lines, effects), key=task.run.id)
        effects.append(RunEffect(kind="github_comment_posted", url=url, details={"number": number}))
    return Published(output=output, effects=effects)


async def _branch(task: AgentTask, change: PreparedChange, sha: str) -> list[RunEffect]:
    await task.host.create_branch(change.branch, sha, message=change.message)
    pull, _ = await task.host.open_pull(change, body=_description(task))
    details = {"branch": change.branch, "commit": sha}
    return [
        RunEffect(kind="branch_created", url=pull.html_url, details=details),
        RunEffect(kind="commit_pushed", url=pull.html_url, details=details),
        RunEffect(kind="pr_created", url=pull.html_url, details={"number": pull.number} | details),
    ]


async def _push(task: AgentTask, change: PreparedChange, sha: str) -> list[RunEffect]:
    await task.host.advance_branch(change.pushed_to, sha)
    details = {"branch": change.pushed_to, "commit": sha}
    return [
        RunEffect(kind="commit_pushed", url=task.topic.url, details=details),
        RunEffect(kind="pr_updated", url=task.topic.url, details=details),
    ]


def _description(task: AgentTask) -> str:
    """The pull request's text: the receipt of the change."""
    closes = f"Closes #{task.topic.number}\n\n" if task.topic.number and task.topic.pull is None else ""
    rows = {
        "run": task.run.id,
        "intent": task.receipt.intent if task.receipt else task.run.type,
        "started by": task.run.trigger.user_id or task.run.trigger.source,
        "candidate": task.run.candidate_id or "none",
        "approval": task.receipt.policy_approval if task.receipt else task.run.approval_status or "none",
    }
    if task.receipt:
        rows |= {
            "change": task.receipt.change_summary, "proposed by": task.receipt.actor,
            "scope": task.receipt.scope, "when": task.receipt.when, "evidence": task.receipt.evidence,
        }  # fmt: skip
    lines = [f"| {name} | {' '.join(text.split()).replace('|', '/')} |" for name, text in rows.items()]
    return closes + "\n".join(["| receipt | |", "|---|---|", *lines, ""])


def _comment(task: AgentTask, lines: list[str], effects: list[RunEffect]) -> str:
    done = [f"- {effect.kind.replace('_', ' ')}: {effect.url}" for effect in effects]
    return "\n".join([f"**{task.run.type}** by Git With Intent ({task.run.id})", "", *lines, *done])
