"""The triage agent: how complex a change is."""

from __future__ import annotations

import msgspec

from holdfast.plural import plural
from holdfast.services.gwi.agents.interface import AgentResult, AgentTask
from holdfast.services.gwi.domain.complexity import complexity_of
from holdfast.services.gwi.domain.diffs import FileDiff, parse_diff


class TriageAgent:
    """Judges the pull request, the approved patch, or the files that an issue names; deterministic."""

    name = "triage"

    async def work(self, task: AgentTask) -> AgentResult:
        files = await self._files(task)
        complexity = complexity_of(files)
        lines = sum(one.lines for one in files)
        output = {
            "complexity": complexity.score, "level": complexity.level,
            "parts": msgspec.to_builtins(complexity.parts), "files": [one.path for one in files][:300],
            "lines": lines,
        }  # fmt: skip
        summary = (
            f"Complexity {complexity.score:g} of 10: {plural(len(files), 'file')}, {plural(lines, 'line')}"
        )
        return AgentResult(output=output, summary=summary)

    async def _files(self, task: AgentTask) -> list[FileDiff]:
        if task.topic.pull is not None:
            pull = task.topic.pull
            return parse_diff(await task.host.diff(pull.base_sha, pull.head_sha))
        if task.candidate is not None:
            return [
                FileDiff(path=one.file, removed=(one.content or "").count("\n"))
                for one in task.candidate.changes
            ]
        return []
