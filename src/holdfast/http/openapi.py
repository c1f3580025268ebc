"""The description of all routes, as `/openapi.json` gives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from litestar import Litestar
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, Reference, SecurityScheme

from holdfast import __version__


def description(handlers: Sequence[Any], dependencies: Mapping[str, Provide]) -> Callable[[], dict[str, Any]]:
    """Describes the handlers when first asked.

    The application that serves has no documentation routes of its framework's own, each of which would
    need a declaration; so the description comes from a twin that serves nothing.
    """

    @cache
    def describe() -> dict[str, Any]:
        schemes: dict[str, SecurityScheme | Reference] = {
            "token": SecurityScheme(type="http", scheme="bearer", description="An API token, hf_…")
        }
        config = OpenAPIConfig(
            title="Holdfast", version=__version__, components=Components(security_schemes=schemes),
            security=[{"token": []}],
        )  # fmt: skip
        twin = Litestar(handlers, dependencies=dependencies, openapi_config=config, logging_config=None)
        return twin.openapi_schema.to_schema()

    return describe
