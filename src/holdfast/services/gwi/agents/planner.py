"""The planner agent: the steps of a change, and the files that a text names."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

from holdfast.plural import plural
from holdfast.services.gwi.agents.interface import AgentResult, AgentTask
from holdfast.services.gwi.domain.planning import draft_plan, plan_of_patch
from holdfast.services.gwi.domain.subjects import Subject, WorkType, classify

FILES_MAX: Final = 12
_NAME: Final = re.compile(r"[\w./-]+\.\w+|[\w-]+/[\w./-]+")


class PlanAgent:
    """Plans by the type of work on the files that are named; deterministic."""

    name = "planner"

    async def work(self, task: AgentTask) -> AgentResult:
        if task.candidate is not None:
            plan = plan_of_patch(task.topic.title or task.candidate.commit_message, task.candidate)
        else:
            plan = draft_plan(_type_of(task), _title(task), files=await self._files(task))
        return AgentResult(
            output=msgspec.to_builtins(plan),
            summary=f"{plural(len(plan.steps), 'step')}, {plural(len(plan.affected_files), 'file')}",
        )

    async def _files(self, task: AgentTask) -> list[str]:
        found: list[str] = list(task.found.get("triage", {}).get("files", []))
        if found:
            return found[:FILES_MAX]
        tree = await task.host.tree(await task.host.tip(task.host.default_branch))
        return named_files(f"{task.topic.title}\n{task.topic.body}\n{task.request.instructions}", tree)


def named_files(text: str, paths: Collection[str]) -> list[str]:
    """The paths that a text names, by their whole path or their last part."""
    names = {name.strip("./") for name in _NAME.findall(text)}
    exact = [path for path in sorted(paths) if path in names]
    by_name = [path for path in sorted(paths) if path.rpartition("/")[2] in names and path not in exact]
    return (exact + by_name)[:FILES_MAX]


def _title(task: AgentTask) -> str:
    return task.topic.title or task.request.title or task.request.instructions[:120] or "Make the change"


def _type_of(task: AgentTask) -> WorkType:
    pull = task.topic.pull is not None
    return classify(
        Subject(
            source="github_pr" if pull else "github_issue", title=task.topic.title,
            labels=tuple(task.topic.labels),
        )
    )  # fmt: skip
