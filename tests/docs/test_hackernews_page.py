"""The page of the service names every route, command, setting, collection and metric there is."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from holdfast.model import schema_of
from holdfast.services.hackernews.commands import commands
from holdfast.services.hackernews.metrics import HackerNewsMetrics
from holdfast.services.hackernews.models import DOCUMENTS
from holdfast.services.hackernews.routes import ROUTES
from holdfast.services.hackernews.settings import HackerNewsSettings

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "hackernews.md").read_text()


def test_every_route_is_on_the_page() -> None:
    routes = [(method, path) for one in ROUTES for method in one.http_methods for path in one.paths]
    shown = {f"{method} {re.sub(':[a-z]+', '', path)}" for method, path in routes}
    assert {one for one in shown if f"`{one}`" not in PAGE} - {"GET /api/v1/_ah/worker"} == set()


def test_every_command_is_on_the_page_and_has_an_example() -> None:
    groups = {"": commands, **{str(one.name): one.typer_instance for one in commands.registered_groups}}
    for name, group in groups.items():
        assert isinstance(group, typer.Typer)
        for one in group.registered_commands:
            assert one.callback is not None
            assert "Example" in (one.callback.__doc__ or ""), one.name
            assert (
                f"`{one.name or one.callback.__name__}" in PAGE
                or f"{name} {one.name}" in PAGE
                or (f"hackernews {one.name or one.callback.__name__}" in PAGE)
            ), one.name


def test_every_setting_collection_and_metric_is_on_the_page() -> None:
    for name in HackerNewsSettings.__struct_fields__:
        assert f"`{name}`" in PAGE
    for cls in DOCUMENTS:
        assert f"`{schema_of(cls).path.names[0].removeprefix('{env}-')}`" in PAGE
    for family in HackerNewsMetrics().collect():
        assert f"`{family.name}" in PAGE
