"""What an agent is: a name, and work on a task that ends in a result."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.services.gwi.agents.code_host import CodeHost, Topic
from holdfast.services.gwi.domain.changes import PreparedChange
from holdfast.services.gwi.domain.patches import Patchset
from holdfast.services.gwi.domain.receipts import IntentReceipt
from holdfast.services.gwi.models.runs import AgentRun
from holdfast.services.gwi.run_starts import RunRequest

T = TypeVar("T", bound=msgspec.Struct)


class ModelAccess(Protocol):
    """A language model within the run's budget of tokens."""

    async def ask(self, text: str, kind: type[T], *, instructions: str) -> T:
        """Ask for a `kind`; InvalidError where the budget is used up."""
        ...


class AgentTask(msgspec.Struct, kw_only=True):
    """What an agent works on: the run, its topic, and what the agents before it found, by their names.

    `change` is the change so far; `candidate` the patch that people approved, where the run applies one,
    and `receipt` its receipt.
    """

    run: AgentRun
    request: RunRequest
    host: CodeHost
    topic: Topic
    found: dict[str, Any]
    change: PreparedChange | None = None
    candidate: Patchset | None = None
    receipt: IntentReceipt | None = None
    model: ModelAccess | None = None


class AgentResult(msgspec.Struct, kw_only=True):
    """What an agent found; one that makes or changes the change returns it."""

    output: dict[str, Any]
    summary: str
    change: PreparedChange | None = None


class Agent(Protocol):
    """A plug-in that does one step of runs.

    It writes nothing: what it returns is stored with the step, and published by the last one. It may be
    repeated after a failure.
    """

    name: str

    async def work(self, task: AgentTask) -> AgentResult:
        """Do the step."""
        ...
