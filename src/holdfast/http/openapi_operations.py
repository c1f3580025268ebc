"""Operations as `/openapi.json` describes them: named and explained by their handlers' declarations."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from typing import Any, Final

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from holdfast.kit.access.authorization import PERSON, PUBLIC, SERVICE_ACCOUNT, VISITOR

_KINDS: Final = {
    PUBLIC: "Anybody may call it.",
    VISITOR: "For visitors who signed in on the service's own pages.",
    PERSON: "For people: with a session or an identity token, whatever their role.",
    SERVICE_ACCOUNT: "For service accounts and tokens with the role `service`.",
}
# Parameters that mean the same wherever they stand; a description of a route's own takes precedence.
_PARAMETERS: Final = {
    "outbox": "The outbox: the kit's own, or a service's.",
    "collection": "Where they are stored: the kit's own collection, or a service's.",
    "endpoint": "Those to this endpoint alone.",
    "number": "Its number, from 1 on.",
    "status": "Those with this status alone.",
    "type": "Those of this type alone.",
    "limit": "Items in the answer, at most.",
    "tenant": "The id of the tenant.",
}
# Said of every parameter by the framework, whether or not it is so.
_NOISE: Final = ("deprecated", "allowEmptyValue", "allowReserved")


class RouteOperation(msgspec.Struct, frozen=True):
    """One operation of the description, and the handler that it describes."""

    path: str
    method: str
    handler: HTTPRouteHandler
    operation: dict[str, Any]
    id: str = ""

    @property
    def tag(self) -> str:
        """The service's address, or the area of the platform."""
        opt = self.handler.opt
        return str(opt.get("service") or opt.get("area") or "routes").replace("_", "-")


def operations_of(described: dict[str, Any], app: Litestar) -> list[RouteOperation]:
    """The operations that are described, each with an id of its own: `tokens_create`."""
    found = [
        RouteOperation(route.path_format, str(method), handler, operation)
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for method, (handler, _) in route.route_handler_map.items()
        if (operation := described["paths"].get(route.path_format, {}).get(str(method).lower()))
    ]
    count = Counter(map(_plain_id, found))
    return [
        msgspec.structs.replace(one, id=id if count[id := _plain_id(one)] == 1 else f"{id}_{_slug(one.path)}")
        for one in found
    ]


def _plain_id(one: RouteOperation) -> str:
    name = one.handler.handler_name
    return _slug(name if name == one.tag else f"{one.tag}_{name}")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def describe_operation(one: RouteOperation) -> None:
    """Set its name, tag, texts and security, and describe its parameters."""
    text = inspect.cleandoc(one.handler.fn.__doc__ or one.handler.handler_name.replace("_", " "))
    first = " ".join(text.partition("\n\n")[0].split())
    summary = re.split(r"(?<=[.?!;])\s", first, maxsplit=1)[0].rstrip(".;")
    one.operation.update(
        operationId=one.id, tags=[one.tag], summary=summary,
        description=f"{text}\n\n{_caller(one.handler)}",
    )  # fmt: skip
    if one.handler.opt["needs"] == PUBLIC:
        one.operation["security"] = []
    one.operation.pop("deprecated", None)
    parameters = one.operation.setdefault("parameters", [])
    parameters += _undeclared(one.path, {parameter["name"] for parameter in parameters})
    for parameter in parameters:
        _describe_parameter(parameter)


def _undeclared(path: str, declared: set[str]) -> list[dict[str, Any]]:
    """The parameters of the path that only the route guard reads."""
    names = [name for name in re.findall(r"\{(\w+)\}", path) if name not in declared]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _caller(handler: HTTPRouteHandler) -> str:
    """Who may call it, in a sentence."""
    opt = handler.opt
    if opt["needs"] in (PUBLIC, VISITOR, PERSON):
        return _KINDS[opt["needs"]]
    where = "on the platform" if opt.get("platform") else "in the tenant"
    who = _KINDS.get(opt["needs"]) or f"Needs the role `{opt['needs']}` {where}."
    scope = f" A token needs the scope `{opt['area']}:{opt['action']}`." if "action" in opt else ""
    return who + scope


def _describe_parameter(parameter: dict[str, Any]) -> None:
    """Describe ids by their names, and leave out what the framework says twice or of no use."""
    for name in _NOISE:
        parameter.pop(name, None)
    parameter["schema"] = _without_null(parameter["schema"])
    name = parameter["name"]
    # The guard's own `?tenant=` is declared for every route, also for those whose path names the tenant.
    if "description" not in parameter or (name == "tenant" and parameter["in"] == "path"):
        usual = f"The id of the {name.removesuffix('_id').replace('_', ' ')}."
        parameter["description"] = _PARAMETERS.get(name, usual if name.endswith("_id") else "")


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter where it is sent: one that is absent is not null."""
    kinds = [kind for kind in schema.get("oneOf", ()) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("oneOf", "description")}
    found = kinds[0] | rest if len(kinds) == 1 else rest | ({"oneOf": kinds} if kinds else {})
    if isinstance(found.get("type"), list):
        types = [kind for kind in found["type"] if kind != "null"]
        found["type"] = types[0] if len(types) == 1 else types
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    return found
