"""The console: pages for people who look after what runs, rendered here, live by a stream of changes.

holdfast.console.routes(runtime) ──► create_app(runtime, more=...)

shell     the frame, navigation and errors            pages/      the shell's own pages, one file a page
places    where pages are, also those of services     templates/  what they look like
sign_in   people coming in and leaving                assets/     styles and scripts, no build step
api_pages the API explorer at /docs
"""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ExceptionHandlersMap

from holdfast.console.api_pages import ApiPages
from holdfast.console.consent_pages import ConsentPages
from holdfast.console.page_registry import HOME, MountedPage
from holdfast.console.shell import AnyRequest, Shell
from holdfast.console.sign_in import SignIn
from holdfast.errors import HoldfastError, NotFoundError
from holdfast.runtime import Runtime

__all__ = ["routes"]


def routes(runtime: Runtime, at_root: bool = False) -> list[Any]:
    """The console's routes, for `create_app(..., more=routes(runtime))`.

    It is at /console; `/` leads there unless the one service at the root has that path itself.
    """
    shell = Shell(runtime)
    taken = runtime.parts[runtime.services[0].name].paths if at_root else set()
    sign_in = SignIn(shell)
    pages = [
        shell.assets.route(), *sign_in.pages(), *ConsentPages(shell).pages(), *ApiPages(shell).pages(),
        _root(), _nowhere(),
    ]  # fmt: skip
    pages += [_page(shell, place) for place in shell.places]
    free = [one for one in pages if one.paths.isdisjoint(taken)]
    acts = [one for one in sign_in.acts() if one.paths.isdisjoint(taken)]
    return [Router("/", route_handlers=free, exception_handlers=_faults(shell)), *acts]


def _faults(shell: Shell) -> ExceptionHandlersMap:
    """Errors as pages. Functions, not methods: the framework copies a router whole."""

    def of_ours(request: AnyRequest, fault: HoldfastError) -> Response[str]:
        return shell.of_ours(request, fault)

    def of_litestar(request: AnyRequest, fault: HTTPException) -> Response[str]:
        return shell.of_litestar(request, fault)

    def of_anything(request: AnyRequest, fault: Exception) -> Response[str]:
        return shell.of_anything(request, fault)

    return {HoldfastError: of_ours, HTTPException: of_litestar, Exception: of_anything}


def _page(shell: Shell, place: MountedPage) -> HTTPRouteHandler:
    opt = {
        "needs": place.page.needs, "area": place.owner, "action": "read", "page": True,
        "platform": place.page.platform, "all_tenants": place.page.all_tenants,
    }  # fmt: skip

    @get(place.route, opt=opt, include_in_schema=False)
    async def page(request: AnyRequest) -> Response[str]:
        return await shell.show(place, request)

    return page


def _root() -> HTTPRouteHandler:
    @get("/", opt={"needs": "public"}, include_in_schema=False)
    async def root() -> Response[None]:
        return Response(None, status_code=303, headers={"location": HOME})

    return root


def _nowhere() -> HTTPRouteHandler:
    opt = {"needs": "viewer", "area": "console", "action": "read", "page": True}

    @get(f"{HOME}/{{rest:path}}", opt=opt, include_in_schema=False)
    async def nowhere(request: Request[Any, Any, Any]) -> None:
        raise NotFoundError("There is no such page. The navigation shows those there are.")

    return nowhere
