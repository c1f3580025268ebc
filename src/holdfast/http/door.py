"""Who comes in: every route says what it needs, and one guard holds it to that.

    @get("/deliveries", opt={"needs": "viewer", "area": "deliveries"})

`needs` is `public`, a role (`viewer`, `developer`, `admin`, `owner`) or `service`. `area` and `action`
are what a token's scopes must cover; without them, the first word of the path and read or update.
A route with `platform` is about the whole and asks for the role where no tenant is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from litestar import Litestar
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import HTTPRoute

from holdfast.errors import DeclarationError, ForbiddenError, UnverifiedError, WrongTenantError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import Gate, Tokens
from holdfast.model.access import ROLES, Caller
from holdfast.store import Store

PUBLIC: Final = "public"
NEEDS: Final = (PUBLIC, *ROLES, "service")
_PRIVILEGED: Final = ("admin", "owner")
_API: Final = "/api/v1/"
Connection = ASGIConnection[Any, Any, Any, Any]


class Door:
    """The guard of one application."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens = Tokens(store)

    async def __call__(self, connection: Connection, handler: BaseRouteHandler) -> None:
        needs = handler.opt["needs"]
        if needs == PUBLIC:
            return
        caller = await self._caller(connection)
        tenant_id = tenant_of(caller, connection.query_params.get("tenant"))
        place = NO_TENANT if handler.opt.get("platform") else tenant_id
        area, action = _scope_of(connection, handler)
        if needs == "service" and not caller.service:
            raise ForbiddenError(f"{action} of {area} needs service", needs=("service",))
        role = ROLES[-1] if needs == "service" else needs
        Gate(self._store, caller).require_act(area, action, role=role, tenant_id=_judged_in(caller, place))
        connection.scope["state"]["caller"] = caller
        connection.scope["state"]["tenant_id"] = tenant_id

    async def _caller(self, connection: Connection) -> Caller:
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise UnverifiedError("send an API token: Authorization: Bearer hf_…")
        caller = await self._tokens.verify(token.strip())
        if caller is None:
            raise UnverifiedError("the token is not known here, has ended or was revoked")
        return caller


def privileged(caller: Caller) -> bool:
    """Whether the caller may ask for any tenant: the service, or an administrator of the whole."""
    return caller.service or caller.roles.get(NO_TENANT) in _PRIVILEGED


def tenant_of(caller: Caller, asked: str | None) -> str:
    """The tenant a request is about: the token's own, or the one asked for by those who may."""
    own = next(iter(caller.roles), NO_TENANT)
    if asked is None or asked == own:
        return own
    if not privileged(caller):
        raise WrongTenantError("the token belongs to another tenant")
    return asked


def _judged_in(caller: Caller, place: str) -> str:
    """An administrator of the whole is judged by that role in every tenant."""
    return NO_TENANT if privileged(caller) else place


def _scope_of(connection: Connection, handler: BaseRouteHandler) -> tuple[str, str]:
    first = connection.scope["path"].removeprefix(_API).strip("/").partition("/")[0]
    usual = "read" if connection.scope.get("method") in ("GET", "HEAD") else "update"
    return str(handler.opt.get("area") or first or "root"), str(handler.opt.get("action") or usual)


def declared_routes(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Every path and method there is, with its handler; answers to OPTIONS need no declaration."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            raise DeclarationError(f"{route.path}: only HTTP routes are served")
        for method, (handler, _) in route.route_handler_map.items():
            if method != "OPTIONS":
                yield route.path, str(method), handler


def check_declared(app: Litestar) -> None:
    """Refuse to serve a route that does not say what it needs."""
    for path, method, handler in declared_routes(app):
        if handler.opt.get("needs") not in NEEDS:
            raise DeclarationError(
                f'{method} {path} does not say what it needs: add opt={{"needs": …}}, one of {_words(NEEDS)}'
            )


def _words(words: Iterable[str]) -> str:
    return ", ".join(words)
