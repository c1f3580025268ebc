from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from holdfast.store import Store
from holdfast.store.plan import QueryPlan
from tests.services.renewals.server import Server, serving, settle_in


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """The reference residents, served."""
    async with serving(tmp_path) as made:
        await settle_in(made.store)
        yield made


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[QueryPlan]:
    """What is asked of any store, as it is asked."""
    seen, made = list[QueryPlan](), Store._plan

    def noted(store: Store, *asked: Any) -> QueryPlan:
        seen.append(made(store, *asked))
        return seen[-1]

    monkeypatch.setattr(Store, "_plan", noted)
    return seen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place of its own for commands; they set the log up, and it is put back."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Where the engine is that the test is asked to run on, by its name."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found
