"""The agents: those built in, and those that installed packages add.

An entry point of the group `holdfast.gwi_agents` names a function without parameters that returns an `Agent`;
one with the name of a built-in agent takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from holdfast.services.gwi.agents.coder import CodeAgent
from holdfast.services.gwi.agents.interface import Agent
from holdfast.services.gwi.agents.planner import PlanAgent
from holdfast.services.gwi.agents.resolver import ResolveAgent
from holdfast.services.gwi.agents.reviewer import ReviewAgent
from holdfast.services.gwi.agents.triage import TriageAgent

GROUP: Final = "holdfast.gwi_agents"


def load_agents() -> Mapping[str, Agent]:
    """The agents by their names."""
    built_in: list[Agent] = [TriageAgent(), PlanAgent(), CodeAgent(), ResolveAgent(), ReviewAgent()]
    added: list[Agent] = [entry.load()() for entry in entry_points(group=GROUP)]
    return {agent.name: agent for agent in (*built_in, *added)}
