"""What an event asks for: commands of its comment, and runs that start by themselves.

    event ──► act (each request once, in a commit of its own) ──► reply (one comment, where a person asked)

They are done after the event's own commit, so that a refusal of one leaves the signal and the others alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.kit.runs import Runs, Step, Workflow
from holdfast.model import Caller
from holdfast.model.access import ROLES
from holdfast.operation import Operator
from holdfast.service import Context
from holdfast.services.gwi.domain.comment_commands import RUN_TYPES, CommentCommand, parse_commands
from holdfast.services.gwi.domain.github_events import AutomaticSettings, GithubEvent, automatic_runs
from holdfast.services.gwi.models.records import AUDIT
from holdfast.services.gwi.models.runs import RunTrigger, RunType
from holdfast.services.gwi.models.tenants import Member, Repo, Tenant, UserProfile
from holdfast.services.gwi.models.work import DedupeEntry, dedupe_id
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.profiles import GITHUB_PREFIX
from holdfast.services.gwi.run_execution import CodeHosts
from holdfast.services.gwi.run_starts import RunRequest
from holdfast.store import Query, Transaction, Write, put

NAME: Final = "gwi-request"
STEP_S: Final = 120.0
PROFILES_MAX: Final = 10
ACTOR: Final = "webhook"


class EventRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What one event asks for, about which issue or pull request, and who asks."""

    delivery: str
    repo_id: str
    number: int | None
    url: str = ""
    title: str = ""
    github_user_id: int = 0
    login: str = ""
    commands: tuple[CommentCommand, ...] = ()
    automatic: tuple[RunType, ...] = ()


def request_of(event: GithubEvent, repo: Repo, tenant: Tenant, *, delivery: str) -> EventRequest | None:
    """What an event asks for; None for nothing."""
    said = {"created": event.comment, "submitted": event.review}.get(event.action or "")
    commands = () if said is None or event.by_bot else parse_commands(said.body or "")
    own, all_repos = repo.settings, tenant.settings
    automatic = automatic_runs(event, AutomaticSettings(
        on_pull_open=all_repos.auto_run_on_pr_open, triage=own.auto_triage, review=own.auto_review,
        on_conflict=all_repos.auto_run_on_conflict or own.auto_resolve,
    ))  # fmt: skip
    if not commands and not automatic:
        return None
    topic, sender = event.topic, event.sender
    return EventRequest(
        delivery=delivery, repo_id=repo.id, number=topic.number, url=topic.html_url or "",
        title=(topic.title or "")[:200], github_user_id=sender.id if sender else 0,
        login=sender.login if sender else "", commands=tuple(commands), automatic=tuple(automatic),
    )  # fmt: skip


class EventRequests:
    """Does what events ask for, as a durable run for each event.

    Example: `tx.write(*requests.writes_start(tenant_id, request))`
    """

    def __init__(self, context: Context, gwi: Gwi, *, hosts: CodeHosts) -> None:
        self._store, self._audits, self._gwi, self._hosts = context.store, context.audit, gwi, hosts
        self.workflow = Workflow(NAME)
        for act in (self._act, self._reply):
            self.workflow.step(name=act.__name__[1:], retries=10, limit_s=STEP_S)(act)

    def writes_start(self, tenant_id: str, request: EventRequest) -> list[Write]:
        return Runs(self._store.tenant(tenant_id)).writes_start(self.workflow, input=request)[1]

    async def _act(self, step: Step) -> dict[str, Any]:
        request, tenant_id = msgspec.convert(step.input, EventRequest), step.run.tenant_id
        started = [
            await self._outcome(self._start(tenant_id, request, type, key=f"automatic {type}"))
            for type in request.automatic
        ]
        replies = []
        for number, command in enumerate(request.commands):
            outcome = command.fault or await self._outcome(self._follow(tenant_id, request, command, number))
            replies.append(f"`{command.text}`: {outcome}")
        return {"request": step.input, "automatic": started, "replies": replies}

    async def _reply(self, step: Step) -> dict[str, Any]:
        """Answer the commands of a comment in one comment; what a killed process has sent is found."""
        request = msgspec.convert(step.input["request"], EventRequest)
        replies: Sequence[str] = step.input["replies"]
        if replies and request.number is not None:
            host = await self._hosts.host(step.run.tenant_id, request.repo_id)
            body = "\n".join([f"@{request.login}", *(f"- {reply}" for reply in replies)])
            await host.comment(request.number, body, key=step.key)
        return {"automatic": step.input["automatic"], "replies": replies}

    async def _outcome(self, doing: Any) -> str:
        """What became of a request, in a sentence; only what may work later is raised."""
        try:
            return str(await doing)
        except HoldfastError as fault:
            # A paused tenant says when to come back; a subclass is about the store or the network.
            if isinstance(fault, RetryLaterError) and type(fault) is not RetryLaterError:
                raise
            return f"refused: {fault.message}"

    async def _follow(
        self, tenant_id: str, request: EventRequest, command: CommentCommand, number: int
    ) -> str:
        user_id, role = await self._person(tenant_id, request.github_user_id)
        type = RUN_TYPES.get(command.name or "")
        if type is not None:
            if not _suffices(role, "developer"):
                return f"refused: it takes the role developer, and @{request.login} has {role or 'none'}"
            return await self._start(
                tenant_id, request, type, key=f"command {number}", user_id=user_id, text=command.text
            )
        caller = Caller(user_id=user_id, roles={tenant_id: role} if role else {})
        by = Operator(tenant_id=tenant_id, actor=user_id, caller=caller, audits=self._audits)
        return await self._decide(by, command)

    async def _decide(self, by: Operator, command: CommentCommand) -> str:
        """Decide about a candidate or a run; who may is the operation's rule."""
        scopes = f" for {', '.join(command.scopes)}" if command.scopes else ""
        approved, target = f"approved in a comment{scopes}", command.target
        candidates, runs = self._gwi.candidates, self._gwi.runs
        match command.name, target.partition("-")[0]:
            case "approve", "cand":
                voted = await candidates.vote(by, target, decision="approved", comment=approved)
                return f"approved {target}, which is {voted.status}"
            case "deny", "cand":
                await candidates.vote(by, target, decision="rejected", comment=command.reason)
                return f"denied {target}"
            case "revoke", "cand":
                left = await candidates.revoke_vote(by, target)
                return f"took the vote on {target} back, which is {left.status}"
            case "approve", "run":
                await runs.approve(by, target, reason=approved)
                return f"approved {target}"
            case "deny", "run":
                await runs.reject(by, target, reason=command.reason)
                return f"denied {target}"
            case "revoke", "run":
                return "refused: a decision about a run is final; cancel the run instead"
        return f"refused: {target!r} is neither a candidate nor a run"

    async def _start(
        self,
        tenant_id: str,
        request: EventRequest,
        type: RunType,
        *,
        key: str,
        user_id: str = "",
        text: str = "",
    ) -> str:
        """Start a run once for this key of the event."""
        entry_id = dedupe_id("request", request.delivery, key)
        wanted = RunRequest(
            type=type, repo_id=request.repo_id, number=request.number, pr_url=request.url,
            title=request.title, automatic=not user_id,
            trigger=RunTrigger(
                source="webhook", user_id=user_id or None, webhook_event_id=request.delivery,
                command_text=text or None,
            ),
        )  # fmt: skip

        async def act(tx: Transaction) -> str:
            before = await tx.get(DedupeEntry, tenant_id, entry_id)
            if before is not None:
                return before.doc.document_id
            run = await self._gwi.runs.starts.start(tx, tenant_id, wanted, actor=user_id or ACTOR)
            now = self._store.clock.now()
            tx.write(put(DedupeEntry(id=entry_id, tenant_id=tenant_id, document_id=run.id, created_at=now)))
            return run.id

        return f"started {type} {await self._audits(tenant_id, models=AUDIT).transact(act)}"

    async def _person(self, tenant_id: str, github_user_id: int) -> tuple[str, str | None]:
        """The member whose GitHub account this is, with their role; None for others."""
        query = Query(UserProfile).where("github_user_id", "==", github_user_id).limit(PROFILES_MAX)
        profiles = (await self._store.privileged().query(query)).docs if github_user_id else []
        ids = [f"{GITHUB_PREFIX}{github_user_id}", *(one.id for one in profiles)]
        found = await self._store.tenant(tenant_id).get_many(Member, [f"{id}_{tenant_id}" for id in ids])
        active = [one.doc for one in found if one is not None and one.doc.status == "active"]
        best = max(active, key=lambda member: ROLES.index(member.role), default=None)
        return (ids[0], None) if best is None else (best.user_id, best.role)


def _suffices(role: str | None, needed: str) -> bool:
    return role is not None and ROLES.index(role) >= ROLES.index(needed)
