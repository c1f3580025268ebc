"""The page of the service names every route, command and table there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from holdfast.model import schema_of
from holdfast.services.renewals import service
from holdfast.services.renewals.commands import commands
from holdfast.services.renewals.models import DOCUMENTS
from holdfast.services.renewals.routes import ROUTES

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "renewals.md").read_text()
# Kept for others' sake, and told of with what they belong to.
UNTOLD = {"renewal_property_names"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.handler_name)
def test_every_route_is_on_the_page(route: object) -> None:
    (path,) = getattr(route, "paths")  # noqa: B009 - the type is the framework's own
    (method,) = getattr(route, "http_methods")  # noqa: B009
    shown = path.removeprefix("/api/v1").replace(":str", "")
    assert f"`{method.value if hasattr(method, 'value') else method} {shown}`" in PAGE


def test_every_collection_is_on_the_page() -> None:
    names = {schema_of(cls).path.names[0] for cls in DOCUMENTS} - UNTOLD
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_every_command_has_an_example_in_its_help() -> None:
    groups = [commands, *(one.typer_instance for one in commands.registered_groups)]
    found = [one for group in groups if isinstance(group, typer.Typer) for one in group.registered_commands]
    assert len(found) >= 15
    for one in found:
        assert one.callback is not None
        assert "Example" in (one.callback.__doc__ or ""), one.name


def test_the_service_says_what_it_is() -> None:
    assert (service.name, service.address) == ("renewals", "renewals")
