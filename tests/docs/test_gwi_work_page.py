"""The page of gwi names every route and command of signals, queue and candidates."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from holdfast.services.gwi.commands import candidates, queue, signals
from holdfast.services.gwi.routes import candidates as candidate_routes
from holdfast.services.gwi.routes import work

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "gwi.md").read_text()
GROUPS = {"signals": signals.commands, "queue": queue.commands, "candidates": candidates.commands}


def test_every_route_is_on_the_page() -> None:
    routes = [
        f"{method} {re.sub(':[a-z]+', '', path)}"
        for one in (*work.ROUTES, *candidate_routes.ROUTES)
        for method in one.http_methods
        for path in one.paths
    ]
    assert [one for one in routes if f"`{one}`" not in PAGE] == []


@pytest.mark.parametrize("group", GROUPS)
def test_every_command_is_on_the_page_and_has_an_example(group: str) -> None:
    found = GROUPS[group]
    assert isinstance(found, typer.Typer)
    for one in found.registered_commands:
        assert one.callback is not None
        assert "Example" in (one.callback.__doc__ or ""), one.name
        assert f"{group} {one.name}`" in PAGE, one.name
