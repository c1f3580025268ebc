"""What the web framework reads of route handlers, read once a run.

Hundreds of tests build the application anew out of the same functions; parsing their signatures,
copying them, listing all routes for each route and modelling arguments are most of that work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache, partial
from types import FunctionType
from typing import Any

import pytest
from litestar import Router
from litestar._signature import SignatureModel
from litestar.handlers import BaseRouteHandler
from litestar.routes import ASGIRoute, BaseRoute, HTTPRoute, WebSocketRoute
from litestar.utils.signature import ParsedSignature


def cache_signatures(patch: pytest.MonkeyPatch) -> None:
    """Let every application share parsed signatures and the models made of them."""
    parse, build = ParsedSignature.from_fn, SignatureModel.create
    parsed: dict[Hashable, ParsedSignature] = {}
    built: dict[Hashable, type[SignatureModel]] = {}

    def from_fn(fn: Callable[..., Any], signature_namespace: dict[str, Any]) -> ParsedSignature:
        key = (_identity(fn), *signature_namespace)
        if key not in parsed:
            parsed[key] = parse(fn, signature_namespace)
        # A description of the application adds parameters to what it is given.
        return replace(parsed[key], parameters={**parsed[key].parameters})

    def create(
        dependency_name_set: set[str], fn: Callable[..., Any], parsed_signature: ParsedSignature,
        type_decoders: Any, data_dto: Any = None,
    ) -> type[SignatureModel]:  # fmt: skip
        key = (_identity(fn), *parsed_signature.parameters, frozenset(dependency_name_set), data_dto)
        if key not in built:
            own = replace(parsed_signature, parameters={**parsed_signature.parameters})
            built[key] = build(dependency_name_set, fn, own, type_decoders, data_dto)
        return built[key]

    patch.setattr(ParsedSignature, "from_fn", from_fn)
    patch.setattr(SignatureModel, "create", create)
    patch.setattr(Router, "route_handler_method_map", property(_RouteMap().of))
    model = BaseRouteHandler.create_kwargs_model

    def defer(handler: BaseRouteHandler, path_parameters: Any) -> _Deferred:
        return _Deferred(partial(model, handler, path_parameters))

    patch.setattr(BaseRouteHandler, "create_kwargs_model", defer)
    patch.setattr(BaseRouteHandler, "__deepcopy__", _copy_for_router, raising=False)


def _copy_for_router(handler: BaseRouteHandler, memo: dict[int, Any]) -> BaseRouteHandler:
    """A handler of the copied router; what it declares is never changed, so both have the same."""
    made = copy(handler)
    made.owner = deepcopy(handler.owner, memo)
    return made


class _Deferred:
    """A model of a handler's arguments, built at the first request: most routes get none in a test."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = cache(build)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._build(), name)


class _RouteMap:
    """The routes of the router that is being filled, by path; each is added once."""

    def __init__(self) -> None:
        self._routes: Sequence[BaseRoute] = ()
        self._added: dict[int, BaseRoute] = {}
        self._map: dict[str, Any] = {}

    def of(self, router: Router) -> dict[str, Any]:
        if router.routes is not self._routes:
            self._routes, self._added, self._map = router.routes, {}, defaultdict(dict)
        for route in router.routes:
            if id(route) not in self._added:
                self._added[id(route)] = route
                self._add(route)
        return self._map

    def _add(self, route: BaseRoute) -> None:
        if isinstance(route, HTTPRoute):
            methods = {name: handler for handler in route.route_handlers for name in handler.http_methods}
            self._map[route.path].update(methods)
        elif isinstance(route, WebSocketRoute):
            self._map[route.path]["websocket"] = route.route_handler
        elif isinstance(route, ASGIRoute):
            self._map[route.path]["asgi"] = route.route_handler


def _identity(fn: Callable[..., Any]) -> Hashable:
    """The code of a plain function, which closures share; one that was wrapped is like itself alone."""
    plain = isinstance(fn, FunctionType) and not fn.__dict__ and not fn.__kwdefaults__
    return fn.__code__ if plain and fn.__defaults__ in (None, (None,)) else fn
