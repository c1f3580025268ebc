"""Public pages of services: at the service's own address, for anybody, working without script.

holdfast.site.routes(runtime) ──► create_app(runtime, more=...)

They share templates, assets and formats with the console (`holdfast.rendering`), and nothing else: each
service brings its own layout. Errors are shown by its `error.html`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog
from litestar import Request, Response, Router, get, post
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ExceptionHandlersMap

from holdfast.conditional import Representation, conditional_response
from holdfast.errors import DeclarationError, HoldfastError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import CurrentVisitor
from holdfast.model.access import ANONYMOUS
from holdfast.operation import declaration_of
from holdfast.rendering.assets import Assets
from holdfast.rendering.templates import HEADERS, check_template, environment_of, error_title, page_folders
from holdfast.routing import By, Visitor
from holdfast.runtime import Runtime
from holdfast.service import PageRequest, PublicForm, PublicPage, Service
from holdfast.web import next_of, parse_form, retry_after, status_of

__all__ = ["routes"]

log = structlog.get_logger("holdfast.site")

ERROR: Final = "error.html"
# For so long, strangers who ask for the same page are given the same.
MICROCACHE_S: Final = 1.0
_HTML: Final = "text/html"
_INTERNAL: Final = "Something went wrong here; please try again in a moment."
AnyRequest = Request[Any, Any, Any]


def routes(runtime: Runtime, *, at_root: bool = False) -> list[Router]:
    """The routes of all public pages and forms, for `create_app(..., more=routes(runtime))`."""
    announced = [s for s in runtime.services if (p := runtime.parts[s.name]).public_pages or p.public_forms]
    bases = {service.name: "" if at_root else f"/{service.address}" for service in announced}
    return [Site(runtime, service, base=bases[service.name]).router() for service in announced]


class Site:
    """The public pages of one service.

    Example: `Site(runtime, service, base="/hackernews").router()`
    """

    def __init__(self, runtime: Runtime, service: Service, *, base: str) -> None:
        self._service, self._parts, self._base = service, runtime.parts[service.name], base
        folder = page_folders([service]).get(service.address)
        if folder is None:
            raise DeclarationError(f"{service.name} has public pages, but no folder pages/ for templates")
        # The console's route serves these files as well: both compute the same address for each.
        assets = Assets({service.address: folder})
        self._environment = environment_of([folder], clock=runtime.clock)
        self._environment.globals.update(base=base, asset=lambda name: assets.url(service.address, name))
        for template in (ERROR, *(page.template for page in self._parts.public_pages)):
            check_template(self._environment, template, path=base or "/")

    def router(self) -> Router:
        pages = [self._page(page) for page in self._parts.public_pages]
        forms = [self._form(form) for form in self._parts.public_forms]
        return Router(
            self._base or "/", route_handlers=[*pages, *forms], exception_handlers=self._faults(),
            opt={"service": self._service.name},
        )  # fmt: skip

    def _page(self, page: PublicPage) -> HTTPRouteHandler:
        @get(page.path or "/", opt={"needs": "public", "microcache_s": MICROCACHE_S}, include_in_schema=False)
        async def show(request: AnyRequest, visitor: Visitor) -> Response[Any]:
            ask = _ask(request, visitor, dict(request.query_params))
            shown = Representation(self._render(page.template, ask, await page.data(ask)), _HTML)
            # A session may end with this very response, which no cache should keep either.
            known = visitor.caller is not None or visitor.cookie is not None
            kept = f"public, max-age={page.max_age_s}" if page.max_age_s else "public, no-cache"
            private = "private, no-cache" if known else kept
            response = conditional_response(request.headers, shown, cache_control=private, vary="cookie")
            response.headers.update(HEADERS)
            return response

        return show

    def _form(self, form: PublicForm) -> HTTPRouteHandler:
        opt: dict[str, Any] = {"needs": form.needs, "area": self._service.address, "quota": form.quota}
        if form.operation is not None:
            declared = declaration_of(form.operation)
            opt |= {"needs": declared.needs, "area": declared.area, "action": declared.verb}
            opt["operation"] = declared

        @post(form.path or "/", opt=opt, status_code=303, include_in_schema=False)
        async def send(request: AnyRequest, by: By, visitor: Visitor) -> Response[None]:
            ask = _ask(request, visitor, parse_form(await request.body()))
            after = next_of(self._base + await form.act(by, ask, visitor))
            return Response(None, status_code=303, headers={"location": after})

        return send

    def _render(self, template: str, ask: PageRequest, data: Mapping[str, Any]) -> bytes:
        page = self._environment.get_template(template)
        return page.render({"ask": ask, "caller": ask.caller, **data}).encode()

    def _faults(self) -> ExceptionHandlersMap:
        """Errors as pages. Functions, not methods: the framework copies a router whole."""

        def of_ours(request: AnyRequest, fault: HoldfastError) -> Response[bytes]:
            status = status_of(fault)
            if status == 500:
                return of_anything(request, fault)
            headers = {"retry-after": after} if (after := retry_after(fault)) else {}
            return self._error(request, status, fault.message, headers)

        def of_litestar(request: AnyRequest, fault: HTTPException) -> Response[bytes]:
            if fault.status_code >= 500:
                return of_anything(request, fault)
            return self._error(request, fault.status_code, fault.detail, {})

        def of_anything(request: AnyRequest, fault: Exception) -> Response[bytes]:
            id = request.scope["state"].get("request_id", "")
            log.error("page failed", path=request.scope["path"], request_id=id, exc_info=fault)
            return self._error(request, 500, _INTERNAL, {})

        return {HoldfastError: of_ours, HTTPException: of_litestar, Exception: of_anything}

    def _error(
        self, request: AnyRequest, status: int, message: str, headers: Mapping[str, str]
    ) -> Response[bytes]:
        ask = _ask(request, request.scope["state"].get("visitor") or CurrentVisitor(), {})
        text = message[:1].upper() + message[1:]
        body = self._render(ERROR, ask, {"status": status, "title": error_title(status), "message": text})
        return Response(body, status_code=status, media_type=_HTML, headers={**HEADERS, **headers})


def _ask(request: AnyRequest, visitor: CurrentVisitor, fields: Mapping[str, str]) -> PageRequest:
    return PageRequest(
        caller=visitor.caller or ANONYMOUS, tenant_id=NO_TENANT, query=fields,
        preferences=visitor.preferences,
        path={name: str(value) for name, value in request.path_params.items()},
    )  # fmt: skip
