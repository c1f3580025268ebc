"""Plans of candidates that nobody planned: by the type of work, or by what a patch does. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from holdfast.services.gwi.domain.patches import ChangePlan, Patchset, PlannedStep
from holdfast.services.gwi.domain.subjects import WorkType

_Action = Literal["create", "modify", "delete", "review", "test"]
_MINUTES: Final = 15
_STEPS: Final[Mapping[WorkType, Sequence[tuple[_Action, str]]]] = {
    "issue_to_code": (
        ("review", "Read the issue and the code it is about"),
        ("modify", "Change the code"),
        ("test", "Add a test that fails without the change"),
    ),
    "pr_review": (("review", "Review the pull request"),),
    "pr_resolve": (("modify", "Resolve the conflicts"), ("test", "Run the tests on the merged code")),
    "docs_update": (("modify", "Change the documentation"),),
    "test_gen": (("review", "Read the code to test"), ("create", "Write the tests")),
    "custom": (("review", "Read what was asked"), ("modify", "Make the change")),
}


def draft_plan(type: WorkType, title: str, *, files: Sequence[str] = ()) -> ChangePlan:
    """Plan the usual steps of this type of work on these files.

    Example: `draft_plan("docs_update", "Explain the settings").steps[0].action` is `"modify"`
    """
    steps = [
        PlannedStep(order=order, description=text, action=action, files=list(files) or None)
        for order, (action, text) in enumerate(_STEPS[type], 1)
    ]
    return ChangePlan(
        summary=title, steps=steps, complexity=_complexity(len(files)), affected_files=sorted(set(files)),
        estimated_minutes=_MINUTES * len(steps),
    )  # fmt: skip


def plan_of_patch(summary: str, patchset: Patchset) -> ChangePlan:
    """Plan what a patch does: one step for each file."""
    steps = [
        PlannedStep(order=order, description=f"{one.action} {one.file}", files=[one.file], action=one.action)
        for order, one in enumerate(patchset.changes, 1)
    ]
    files = sorted(one.file for one in patchset.changes)
    return ChangePlan(summary=summary, steps=steps, complexity=_complexity(len(files)), affected_files=files)


def _complexity(files: int) -> int:
    """1 to 3 by the number of files; 4 and 5 are for those who know the code to say."""
    return 1 if files <= 5 else 2 if files <= 10 else 3
