"""The workflows of runs: which agents do which type of run, and how their results are stored.

    triage     triage ──────────────────────────────► publisher
    plan       triage ─► planner ───────────────────► publisher
    review     triage ─► reviewer ──────────────────► publisher
    resolve    triage ─► resolver ─► reviewer ──────► publisher (waits for approval where one is needed)
    autopilot  triage ─► planner ─► coder ─► reviewer ► publisher (likewise)

The state between steps holds the topic, what each agent found, and the change; it is the run's checkpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import ForbiddenError, InvalidError
from holdfast.kit.audit import AuditEntry, AuditFactory
from holdfast.kit.runs import BackOff, Step, StepWaits, TokenUsage, Workflow
from holdfast.providers.language_model import LanguageModel, ModelTokens
from holdfast.services.gwi.agents.code_host import CodeHost, Topic
from holdfast.services.gwi.agents.interface import Agent, AgentResult, AgentTask
from holdfast.services.gwi.agents.publisher import publish
from holdfast.services.gwi.domain.changes import PreparedChange, publication_of, shown_diff
from holdfast.services.gwi.domain.policy import PolicyRequest, decide_policy, read_policy
from holdfast.services.gwi.models.records import AUDIT
from holdfast.services.gwi.models.runs import AgentRun, ProposedChange, RunLog, RunType
from holdfast.services.gwi.models.tenants import Tenant
from holdfast.services.gwi.models.work import Candidate
from holdfast.services.gwi.run_records import SYSTEM, tokens_after
from holdfast.services.gwi.run_starts import RunRequest, receipt_of
from holdfast.store import Store, Transaction, create

T = TypeVar("T", bound=msgspec.Struct)
PUBLISHER: Final = "publisher"
STEPS: Final[Mapping[RunType, Sequence[str]]] = {
    "triage": ("triage",),
    "plan": ("triage", "planner"),
    "review": ("triage", "reviewer"),
    "resolve": ("triage", "resolver", "reviewer"),
    "autopilot": ("triage", "planner", "coder", "reviewer"),
}
# The kinds of work by which a run's tokens are counted.
TOKEN_KINDS: Final = {
    "triage": "triage", "planner": "plan", "coder": "code", "resolver": "code", "reviewer": "review",
}  # fmt: skip
BACK_OFF: Final = BackOff(first_s=1.0, wait_s_max=60.0)
RUN_S: Final = 3_600.0
SUMMARY_CHARACTERS_MAX: Final = 500
# More than any rule can ask for: what is refused with these is denied.
APPROVALS_ENOUGH: Final = 100

Hosts = Callable[[str, str], Awaitable[CodeHost]]


class RunState(msgspec.Struct, kw_only=True):
    """What is stored between the steps."""

    topic: Topic = msgspec.field(default_factory=Topic)
    found: dict[str, Any] = {}
    lines: list[str] = []
    change: PreparedChange | None = None
    # Why somebody has to look at the change before it is published.
    flags: list[str] = []


class BudgetedModel:
    """A language model for one step, within what the run has left of its tokens."""

    def __init__(self, model: LanguageModel, step: Step, budget: int) -> None:
        self._model, self._step, self._budget = model, step, budget

    async def ask(self, text: str, kind: type[T], *, instructions: str) -> T:
        used = self._step.run.tokens + self._step.tokens
        left = self._budget - used.input - used.output
        if left <= 0:
            raise InvalidError(f"the run has used its budget of {self._budget:,} tokens")
        return await self._model.ask(
            text, kind, instructions=instructions, tokens_max=left, count=self._count
        )

    def _count(self, tokens: ModelTokens) -> None:
        self._step.add_tokens(TokenUsage(tokens.input, tokens.output))


class AgentWorkflows:
    """The workflow of each type of run, over the agents and what they need."""

    def __init__(
        self,
        store: Store,
        agents: Mapping[str, Agent],
        *,
        hosts: Hosts,
        audits: AuditFactory,
        model: LanguageModel | None = None,
        run_tokens_max: int = 200_000,
    ) -> None:
        self._store, self._agents, self._hosts, self._audits = store, agents, hosts, audits
        self._model, self._run_tokens_max = model, run_tokens_max
        self.by_type: dict[RunType, Workflow] = {name: self._workflow(name) for name in STEPS}

    def _workflow(self, type: RunType) -> Workflow:
        workflow = Workflow(type, limit_s=RUN_S)
        for name in STEPS[type]:
            workflow.step(name=name, back_off=BACK_OFF)(self._work)
        workflow.step(name=PUBLISHER, back_off=BACK_OFF)(self._publish)
        return workflow

    async def _work(self, step: Step) -> Any:
        """Let the step's agent work, and store what it found."""
        run, state = await self._begin(step)
        task = await self._task(step, run, state)
        result = await self._agents[step.name].work(task)
        state.found[step.name] = result.output
        state.lines.append(f"- {step.name}: {result.summary}"[:SUMMARY_CHARACTERS_MAX])
        state.change = result.change or state.change
        if is_last_agent(step, run) and state.change is not None:
            refused = await self._policy_reasons(run, task.host.repo, state.change)
            state.flags = [*flags_of(state), *refused]
        self._finish(step, run, result, state=state)
        return result.output

    async def _begin(self, step: Step) -> tuple[AgentRun, RunState]:
        """Read the state of the steps before, and record that this one begins."""
        run = step.run
        assert isinstance(run, AgentRun)
        audit = self._audits(run.tenant_id, models=AUDIT)
        details = {"agent": step.name, "stepId": run.current_step, "attempts": step.attempt}
        entry = AuditEntry(
            action="step_started", actor=SYSTEM, subject=run.id, details=details,
            fields=receipt_of(run),
        )  # fmt: skip

        async def act(tx: Transaction) -> None:
            tx.write(step.guard())
            await audit.add(tx, entry)

        await audit.transact(act)
        return run, msgspec.convert(step.state, RunState)

    async def _task(self, step: Step, run: AgentRun, state: RunState) -> AgentTask:
        request = msgspec.convert(run.input, RunRequest)
        host = await self._hosts(run.tenant_id, run.repo_id)
        if request.number is not None and state.topic.number is None:
            state.topic = await host.topic(request.number)
        elif not state.topic.title:
            state.topic.title = request.title or request.instructions[:120]
        candidate = await self._candidate(run)
        return AgentTask(
            run=run, request=request, host=host, topic=state.topic, found=state.found, change=state.change,
            candidate=candidate.patchset if candidate else None,
            receipt=candidate.intent_receipt if candidate else None,
            model=None if self._model is None else BudgetedModel(self._model, step, self._run_tokens_max),
        )  # fmt: skip

    async def _candidate(self, run: AgentRun) -> Candidate | None:
        if run.candidate_id is None:
            return None
        stored = await self._store.tenant(run.tenant_id).get(Candidate, run.tenant_id, run.candidate_id)
        return None if stored is None else stored.doc

    async def _policy_reasons(self, run: AgentRun, repo: str, change: PreparedChange) -> list[str]:
        """Why the tenant's policy wants an approval; ForbiddenError where it denies the change."""
        stored = await self._store.tenant(run.tenant_id).get(Tenant, run.tenant_id)
        saved = None if stored is None else stored.doc.policy
        policy = read_policy(saved.document if saved is not None and saved.valid else None)
        deletes = any(path.action == "delete" for path in change.paths)
        request = PolicyRequest(
            action_class="DESTRUCTIVE" if deletes else "WRITE_NON_DESTRUCTIVE", action="run.publish",
            repo=repo, branch=change.pushed_to if run.risk_mode == "auto_push" else change.branch,
            paths=[path.file for path in change.paths], changed_lines=change.lines,
            actor=run.trigger.user_id or run.trigger.source,
        )  # fmt: skip
        approved = decide_policy(policy, msgspec.structs.replace(request, approvals=APPROVALS_ENOUGH))
        if not approved.allowed:
            raise ForbiddenError(f"the policy refuses it: {approved.reason}", "policy")
        decision = decide_policy(policy, request)
        return [] if decision.allowed else [decision.reason]

    def _finish(self, step: Step, run: AgentRun, result: AgentResult, *, state: RunState) -> None:
        """Add to the step's commit what its result changes in the run."""
        step.state.clear()
        step.state.update(msgspec.to_builtins(state))
        step.add(create(RunLog(
            run_id=run.id, tenant_id=run.tenant_id, step_id=run.current_step or "",
            at=self._store.clock.now(), message=f"{step.name}: {result.summary}"[:SUMMARY_CHARACTERS_MAX],
        )))  # fmt: skip
        used = step.tokens.input + step.tokens.output
        if used:
            step.change(tokens_used=tokens_after(run, TOKEN_KINDS.get(step.name, "code"), used))
        if is_last_agent(step, run) and state.change is not None:
            step.change(**self._proposal(run, state))

    def _proposal(self, run: AgentRun, state: RunState) -> dict[str, Any]:
        """The change as people see it, and whether they have to approve it."""
        assert state.change is not None
        flagged = state.flags
        how = publication_of(
            run.risk_mode, state.change, approved=run.approval_status == "approved", flagged=flagged
        )
        proposed = [
            ProposedChange(file=path.file, action=path.action, diff=shown_diff(path.diff) or None)
            for path in state.change.paths[:100]
        ]
        fields: dict[str, Any] = {"proposed_changes": proposed}
        if how == "approval":
            fields |= {"approval_status": "pending", "approval_reason": "; ".join(flagged)[:500] or None}
        return fields

    async def _publish(self, step: Step) -> Any:
        if getattr(step.run, "approval_status", None) == "pending":
            raise StepWaits
        run, state = await self._begin(step)
        task = await self._task(step, run, state)
        how = publication_of(
            run.risk_mode, state.change, approved=run.approval_status == "approved", flagged=state.flags
        )
        published = await publish(task, how, lines=state.lines)
        step.change(effects=[*run.effects, *published.effects])
        if "prUrl" in published.output:
            step.change(pr_url=published.output["prUrl"])
        return published.output | {"found": state.found}


def is_last_agent(step: Step, run: AgentRun) -> bool:
    """Whether only the publisher comes after this step."""
    return run.steps[-2].name == step.name


def flags_of(state: RunState) -> list[str]:
    """What the agents found that somebody has to look at."""
    review = state.found.get("reviewer", {})
    flags = [one["message"] for one in review.get("findings", []) if one["severity"] == "error"]
    if state.found.get("resolver", {}).get("proposed"):
        flags.append("a language model resolved conflicts")
    return flags
