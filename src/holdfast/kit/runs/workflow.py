"""Workflows: a named list of steps, each an async function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.backoff import BackOff
from holdfast.errors import DeclarationError, InvalidError
from holdfast.kit.runs.models import RunFields, StepProgress, TokenUsage
from holdfast.store.commit import Fence, Write, check, patch

STEPS_MAX: Final = 100
STEP_LIMIT_S: Final = 300.0
RUN_LIMIT_S: Final = 3_600.0
RETRIES: Final = 3

Act = Callable[["Step"], Awaitable[Any]]
A = TypeVar("A", bound=Act)


class StepWaits(Exception):
    """Raised by a step that can't continue yet: for `after_s`, or until `Runs.wake` where that is None.

    The step then begins again; waiting is no failure and does not count against the run's time limit.
    """

    def __init__(self, after_s: float | None = None) -> None:
        super().__init__("the step waits")
        self.after_s = after_s


class StepDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One declared step."""

    name: str
    act: Act
    retries: int
    limit_s: float
    back_off: BackOff


class Workflow:
    """Steps in the order of their declaration; a process works on at most `concurrency` of its runs at once.

    Example:
        autopilot = Workflow("autopilot")

        @autopilot.step()
        async def triage(step: Step) -> dict[str, int]:
            return {"complexity": 3}

        @autopilot.step(retries=5, limit_s=60)
        async def code(step: Step) -> str:
            return f"patch for complexity {step.input['complexity']}"
    """

    def __init__(self, name: str, *, limit_s: float = RUN_LIMIT_S, concurrency: int | None = None) -> None:
        if not name or ":" in name:
            raise DeclarationError(f"a workflow's name is not empty and has no ':', unlike {name!r}")
        self.name = name
        self.concurrency = concurrency
        self.limit_s = limit_s
        self.steps: dict[str, StepDefinition] = {}

    def step(
        self,
        *,
        name: str | None = None,
        retries: int = RETRIES,
        limit_s: float = STEP_LIMIT_S,
        back_off: BackOff | None = None,
    ) -> Callable[[A], A]:
        """Declare the next step; its name is the function's unless given."""

        def declare(act: A) -> A:
            title = name or getattr(act, "__name__", "")
            if not title or title in self.steps or len(self.steps) == STEPS_MAX:
                raise DeclarationError(
                    f"workflow {self.name}: {title!r} needs a name of its own among at most {STEPS_MAX} steps"
                )
            self.steps[title] = StepDefinition(
                name=title, act=act, retries=retries, limit_s=limit_s, back_off=back_off or BackOff()
            )
            return act

        return declare


class Step:
    """The context of a step: its input and state, and what it adds to its own commit."""

    def __init__(self, run: RunFields, name: str, *, input: Any, state: dict[str, Any], attempt: int) -> None:
        self.run = run
        self.name = name
        self.attempt = attempt
        self.input = input
        self.state = state
        self.tokens = TokenUsage()
        self.writes: list[Write] = []
        self.changes: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The idempotency key for calls to the outside: the same at every attempt."""
        return f"{self.run.id}:{self.name}"

    def guard(self) -> Write:
        """A guard for commits in the middle of the step: refused once another worker holds the run."""
        return check(type(self.run), self.run.id, expect=Fence(self.run.fence))

    def progress(self) -> Write:
        """A guard that also records progress, for the commits of a step that resumes where it stopped.

        A run whose step keeps losing its worker fails, unless each worker got further.
        """
        summary = next(one for one in self.run.steps if one.name == self.name)
        progress = StepProgress(self.name, self.attempt - summary.failures)
        changes = {"progress": progress}
        return patch(type(self.run), self.run.id, changes=changes, expect=Fence(self.run.fence))

    def add(self, *writes: Write) -> None:
        """Add writes to the commit that completes the step."""
        self.writes.extend(writes)

    def change(self, **fields: Any) -> None:
        """Change fields that a service added to the run, in the commit that completes the step."""
        for name in fields:
            if name in RunFields.__struct_fields__:
                raise InvalidError(f"{name} is maintained by the runner", name)
        self.changes.update(fields)

    def add_tokens(self, tokens: TokenUsage) -> None:
        """Count tokens, also those of failed attempts."""
        self.tokens += tokens
