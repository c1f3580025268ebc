"""Addresses, node ids and times in the simulated GitHub's answers."""

from __future__ import annotations

import base64
from datetime import datetime

from holdfast.simulators.github.repository import SimulatedRepository
from holdfast.simulators.github.state import GithubState


class GithubAddresses:
    """The addresses of the API and of pages, once the simulator listens."""

    def __init__(self, state: GithubState) -> None:
        self._state = state

    @property
    def url(self) -> str:
        return self._state.url

    def api(self, repo: SimulatedRepository) -> str:
        return f"{self.url}/repos/{repo.full_name}"

    def page(self, repo: SimulatedRepository) -> str:
        return f"{self.url}/{repo.full_name}"


def time_text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def node_id(kind: str, id: object) -> str:
    return base64.b64encode(f"{kind}{id}".encode()).decode()
