"""The description of all routes, as `/openapi.json` gives it and the console's `/docs` shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from litestar import Litestar
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, Reference, SecurityScheme

from holdfast import __version__
from holdfast.http.error_responses import ErrorFormats
from holdfast.http.openapi_operations import RouteOperation, describe_operation, operations_of
from holdfast.http.openapi_schemas import Schemas
from holdfast.kit.access import COOKIE
from holdfast.service import Service

_ABOUT: Final = (
    "Programs send an API token, people the cookie of their session. A list takes `limit` and `cursor` and "
    "gives the cursor of its next page. `?tenant=` names another tenant, for those who may ask for any."
)
_REFUSALS: Final = {
    400: "Malformed request.", 401: "No credentials, or none that are valid.",
    403: "The caller may not do this.", 404: "Not found.", 405: "Method not allowed.",
    409: "Conflict with another change.", 413: "Too large.",
    422: "Invalid input; the details name the field and the values it takes.",
    429: "Too many requests; wait as Retry-After says.", 503: "Unavailable; try again as Retry-After says.",
    504: "It took too long and was aborted.",
}  # fmt: skip
# The framework's description of a request that can't be read, in a shape that is not ours.
_FRAMEWORKS_OWN: Final = "Bad request syntax or unsupported method"
_JSON: Final = "application/json"


def description(
    handlers: Sequence[Any],
    dependencies: Mapping[str, Provide],
    formats: ErrorFormats,
    *,
    services: Sequence[Service],
) -> Callable[[], dict[str, Any]]:
    """Describes the handlers when first asked.

    The application that serves has no documentation routes of its framework's own, each of which would
    need a declaration; so the description comes from a twin that serves nothing.
    """

    @cache
    def describe() -> dict[str, Any]:
        config = OpenAPIConfig(
            title="Holdfast", version=__version__, description=_ABOUT,
            components=Components(security_schemes=_security_schemes()),
            security=[{"token": []}, {"session": []}],
        )  # fmt: skip
        twin = Litestar(handlers, dependencies=dependencies, openapi_config=config, logging_config=None)
        described = twin.openapi_schema.to_schema()
        _complete(described, operations_of(described, twin), formats)
        described["tags"] = _tags(described, services)
        return described

    return describe


def _security_schemes() -> dict[str, SecurityScheme | Reference]:
    return {
        "token": SecurityScheme(
            type="http", scheme="bearer", description="An API token, hf_…, or an identity token."
        ),
        "session": SecurityScheme(
            type="apiKey", name=COOKIE, security_scheme_in="cookie",
            description="The session of a person who signed in; a page's acts also send its X-CSRF-Token.",
        ),
    }  # fmt: skip


def _complete(described: dict[str, Any], operations: Sequence[RouteOperation], formats: ErrorFormats) -> None:
    """Add what the framework does not say: words, exact schemas, and how a request may be refused."""
    schemas = Schemas([one.handler for one in operations], formats.responses)
    refused: dict[str, Any] = {}
    for one in operations:
        describe_operation(one)
        _add_body(one, schemas)
        answers = one.operation["responses"]
        for status, answer in answers.items():
            _describe_answer(status, answer)
        for status, kind in one.handler.opt.get("answers", {}).items():
            answer = answers.setdefault(str(status), {"description": HTTPStatus(status).phrase})
            answer.setdefault("content", {})[_JSON] = {"schema": schemas.of(kind)}
        if answers.get("400", {}).get("description") == _FRAMEWORKS_OWN:
            del answers["400"]
        refused |= _add_refusals(answers, formats.of({"path": one.path}).response, schemas)
    described["components"] |= {"schemas": schemas.components, "responses": refused}


def _add_body(one: RouteOperation, schemas: Schemas) -> None:
    """Describe the body of a route that reads it by itself, because it may be absent."""
    if kind := one.handler.opt.get("body"):
        required = "required" in schemas.components[kind.__name__]
        content = {_JSON: {"schema": schemas.of(kind)}}
        one.operation["requestBody"] = {"required": required, "content": content}


def _describe_answer(status: str, answer: dict[str, Any]) -> None:
    if status.startswith("2"):
        answer["description"] = HTTPStatus(int(status)).phrase
    if not answer.get("headers"):
        answer.pop("headers", None)
    content = answer.get("content", {})
    # Without the parameters of the media type, by which clients don't tell answers apart.
    answer["content"] = {
        name.partition(";")[0]: one if name == _JSON or one["schema"] else {"schema": {"type": "string"}}
        for name, one in content.items()
    }


def _add_refusals(answers: dict[str, Any], shape: Any, schemas: Schemas) -> dict[str, Any]:
    """How a request may be refused is the same for all routes; returns the responses that they refer to."""
    content = {_JSON: {"schema": schemas.of(shape)}}
    names = {status: f"{shape.__name__}{status}" for status in _REFUSALS}
    for status, name in names.items():
        answers.setdefault(str(status), {"$ref": f"#/components/responses/{name}"})
    return {names[status]: {"description": why, "content": content} for status, why in _REFUSALS.items()}


def _tags(described: dict[str, Any], services: Sequence[Service]) -> list[dict[str, str]]:
    summaries = {service.address: service.summary for service in services}
    names = {
        tag: summaries.get(tag, "")
        for methods in described["paths"].values()
        for operation in methods.values()
        for tag in operation["tags"]
    }
    return [{"name": name, **({"description": text} if text else {})} for name, text in names.items()]
