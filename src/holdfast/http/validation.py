"""What does not fit a route's declaration: the field, and the values that would fit."""

from __future__ import annotations

import difflib
import re
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from holdfast.errors import InvalidError
from holdfast.kit.access.authorization import PUBLIC, VISITOR

_NO_BODY: Final = "send a JSON body, {} where there is nothing to say"
_UNKNOWN: Final = re.compile(r"unknown field `([^`]+)`")


class QueryNames:
    """The query parameters that each handler declares, its dependencies' included; read at its first call.

    Pages and public routes are left out: links to them, and providers that redirect to them, add their own.
    """

    def __init__(self, app: Litestar) -> None:
        self._models = {
            id(handler): model
            for route in app.routes
            if isinstance(route, HTTPRoute)
            for handler, model in route.route_handler_map.values()
            if _is_closed(handler)
        }
        self._names: dict[int, frozenset[str]] = {}

    def of(self, handler: BaseRouteHandler) -> frozenset[str] | None:
        """The names that a handler takes; None where it takes any."""
        key = id(handler)
        if key in self._models and key not in self._names:
            declared = self._models[key].expected_query_params
            # The guard itself reads `tenant`, which links to every route may carry.
            self._names[key] = frozenset(["tenant", *(one.field_alias for one in declared)])
        return self._names.get(key)


def _is_closed(handler: BaseRouteHandler) -> bool:
    open_ended = handler.opt.get("page") or handler.opt.get("needs") in (None, PUBLIC, VISITOR)
    return not open_ended and "request" not in handler.parsed_fn_signature.parameters


def check_query(sent: set[str], allowed: frozenset[str]) -> None:
    """Refuse query parameters that a route does not know; it would answer as if they were not there."""
    unknown = sorted(sent - allowed)
    if unknown:
        name = unknown[0]
        close = difflib.get_close_matches(name, allowed, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise InvalidError(f"{name}: unknown query parameter{meant}", name, allowed=sorted(allowed))


def describe_problems(handler: BaseRouteHandler, extra: Any) -> tuple[str, dict[str, Any]]:
    """The message and the details of what did not fit: the first field, its allowed values, all problems."""
    problems = [_problem(handler, one) for one in extra] if isinstance(extra, list) else []
    if not problems:
        return "the request does not fit", {"path": None}
    first = problems[0]
    allowed = f"; use one of {', '.join(map(str, first['allowed']))}" if "allowed" in first else ""
    field = f"{first['path']}: " if first["path"] else ""
    return f"{field}{first['message']}{allowed}", {**first, "problems": problems}


def _problem(handler: BaseRouteHandler, one: dict[str, Any]) -> dict[str, Any]:
    message, path = str(one.get("message", "")), str(one.get("key", ""))
    if message == "'data'":
        return {"path": "", "message": _NO_BODY}
    in_body = one.get("source") == "body"
    parents = [name for name in path.split(".") if name != "data"] if in_body else [path]
    if unknown := _UNKNOWN.search(message):
        kind = _declared(handler, parents, in_body=in_body)
        fields = sorted(field.encode_name for field in getattr(kind, "fields", ()))
        return {"path": ".".join([*parents, unknown[1]]), "message": "unknown field", "allowed": fields}
    field = ".".join(parents) if in_body else _public_name(handler, path)
    found = {"path": field, "message": message[:1].lower() + message[1:]}
    allowed = _literals(_declared(handler, parents, in_body=in_body))
    return found | ({"allowed": allowed} if allowed else {})


def _public_name(handler: BaseRouteHandler, name: str) -> str:
    """The name that callers give a parameter, which the framework reports by the function's own."""
    declared = handler.parsed_fn_signature.parameters.get(name)
    return getattr(declared and declared.kwarg_definition, "name", None) or name


def _declared(handler: BaseRouteHandler, path: list[str], *, in_body: bool) -> Any:
    """The declared type of a query parameter, or of a field of the body; None where it is not known."""
    parameters = handler.parsed_fn_signature.parameters
    declared = parameters.get("data" if in_body else path[0])
    kind: Any = None if declared is None else msgspec.inspect.type_info(declared.annotation)
    for name in path if in_body else ():
        fields = (field.type for field in getattr(kind, "fields", ()) if field.encode_name == name)
        kind = next(fields, None)
    return kind


def _literals(kind: Any) -> list[Any]:
    """The values of a type that has only some."""
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    return [value for one in kinds if isinstance(one, msgspec.inspect.LiteralType) for value in one.values]
