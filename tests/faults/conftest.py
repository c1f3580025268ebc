"""Each fault test runs on real engines with real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.fork_server import ForkServer


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    found = ForkServer()
    yield found
    found.close()


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """The empty store of the engine a test is parametrised with."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found
