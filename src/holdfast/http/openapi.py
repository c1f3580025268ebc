"""The description of all routes, as `/openapi.json` gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, Reference, SecurityScheme

from holdfast import __version__
from holdfast.http.error_responses import ErrorFormats

_REFUSALS: Final = {
    400: "It can't be read.", 401: "No credentials, or none that count.", 403: "The caller may not do this.",
    404: "It is not there.", 405: "Not with this method.", 409: "Something else happened in between.",
    413: "Too large.", 422: "It can be read, but it breaks a rule.", 429: "Too often; wait first.",
    503: "Try again later.", 504: "It took too long and was given up.",
}  # fmt: skip
_PLACE: Final = "#/components/schemas/{name}"
# What the framework would say of a request that can't be read, in a shape that is not ours.
_FRAMEWORKS_OWN: Final = "Bad request syntax or unsupported method"


def description(
    handlers: Sequence[Any], dependencies: Mapping[str, Provide], formats: ErrorFormats
) -> Callable[[], dict[str, Any]]:
    """Describes the handlers when first asked.

    The application that serves has no documentation routes of its framework's own, each of which would
    need a declaration; so the description comes from a twin that serves nothing. How a request may be
    refused is the same for all, so it is said here and not by each; a route may say more itself.
    """

    @cache
    def describe() -> dict[str, Any]:
        schemes: dict[str, SecurityScheme | Reference] = {
            "token": SecurityScheme(
                type="http", scheme="bearer", description="An API token, hf_…, or an identity token."
            )
        }
        config = OpenAPIConfig(
            title="Holdfast", version=__version__, components=Components(security_schemes=schemes),
            security=[{"token": []}],
        )  # fmt: skip
        twin = Litestar(handlers, dependencies=dependencies, openapi_config=config, logging_config=None)
        return _with_refusals(twin.openapi_schema.to_schema(), formats)

    return describe


def _with_refusals(described: dict[str, Any], formats: ErrorFormats) -> dict[str, Any]:
    for path, operation in _operations(described):
        response = formats.of({"path": path}).response
        (shape,), parts = msgspec.json.schema_components([response], ref_template=_PLACE)
        described["components"].setdefault("schemas", {}).update(parts)
        answers = operation.setdefault("responses", {})
        if answers.get("400", {}).get("description") == _FRAMEWORKS_OWN:
            del answers["400"]
        for status, why in _REFUSALS.items():
            refused = {"description": why, "content": {"application/json": {"schema": shape}}}
            answers.setdefault(str(status), refused)
    return described


def _operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described.get("paths", {}).items():
        yield from ((path, one) for one in methods.values() if isinstance(one, dict) and "operationId" in one)
