"""A simulated GitHub with an organisation, a repository and an installed App, and a client for it."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import aiohttp

from holdfast.clock import Clock
from holdfast.providers.github import GithubApp, GithubClient
from holdfast.providers.rest import CallLimits
from holdfast.simulators.github import AddRepository, GithubSimulator, Install

REPO = "acme/api"
FILES = {"README.md": "# API\n\nIt answers.\n", "src/main.py": "one\ntwo\nthree\nfour\nfive\n"}


class GithubSetting:
    """The simulator, the App, and its installation in the organisation `acme`."""

    def __init__(
        self, github: GithubSimulator, session: aiohttp.ClientSession, clock: Clock, limits: CallLimits
    ) -> None:
        self.github, self.clock = github, clock
        self.repository: Any = github.run(AddRepository(name=REPO, files=FILES))
        self.installation: Any = github.run(Install(account="acme", by="olivia"))
        self.app = GithubApp(
            session, github.app_id, github.private_key, clock=clock, base_url=github.url, limits=limits
        )

    @property
    def client(self) -> GithubClient:
        return self.app.installation(self.installation["id"])


@asynccontextmanager
async def a_github(clock: Clock, *, limits: CallLimits = CallLimits()) -> AsyncIterator[GithubSetting]:
    async with GithubSimulator(clock=clock) as github, aiohttp.ClientSession() as session:
        yield GithubSetting(github, session, clock, limits)


@cache
def models() -> Any:
    """The resources as githubkit has them from GitHub's own description."""
    return importlib.import_module("githubkit_schemas.latest.models")
