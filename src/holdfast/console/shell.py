"""The frame around every page: navigation, who is signed in, whose documents, errors; one visual language."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import structlog
from jinja2 import Environment
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from holdfast import __version__
from holdfast.console import plots
from holdfast.console.page_registry import OWN, MountedPage, mounted_pages
from holdfast.errors import DeclarationError, HoldfastError
from holdfast.kit import ALL_TENANTS, NO_TENANT
from holdfast.kit.access import SessionCaller
from holdfast.kit.access.authorization import (
    default_tenant,
    has_role,
    is_person,
    meets,
    own_tenant,
    privileged,
)
from holdfast.model.access import ANONYMOUS, Caller
from holdfast.operations.tenants import Tenants
from holdfast.rendering.assets import Assets
from holdfast.rendering.templates import HEADERS, check_template, environment_of, error_title, page_folders
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.web import status_of

log = structlog.get_logger("holdfast.console")

HERE: Final = Path(__file__).parent
API: Final = "/docs"
AnyRequest = Request[Any, Any, Any]


class NavLink(msgspec.Struct, frozen=True):
    title: str
    url: str
    current: bool


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell says around a page."""

    caller: Caller
    name: str
    role: str
    tenant_id: str
    selected_tenant: str  # what links stay with
    default_tenant: str  # what links need not name
    any_tenant: bool
    csrf: str
    path: str
    groups: Mapping[str, list[NavLink]]

    @property
    def all_tenants(self) -> bool:
        """Whether the page is about every tenant's documents."""
        return self.tenant_id == ALL_TENANTS

    def enter(self, tenant_id: str) -> Frame:
        """The frame around one document of a tenant, reached from a list over all of them."""
        return msgspec.structs.replace(self, tenant_id=tenant_id, selected_tenant=tenant_id)

    def link(self, path: str, **query: Any) -> str:
        """A place on this site about the same tenant; a query value of None is left out.

        `{name}` stays as it is, for scripts that fill in what an act answered.
        """
        asked = {name: value for name, value in query.items() if value not in (None, "")}
        chosen = {"tenant": self.selected_tenant, **asked}
        if chosen["tenant"] == self.default_tenant:
            del chosen["tenant"]
        parameters = urlencode(chosen)
        quoted = quote(path, safe="/:~@+{}")
        return f"{quoted}?{parameters}" if parameters else quoted


class Shell:
    """Renders pages.

    Example: `Shell(runtime).html("error.html", {"message": "no"}, request, title="Error")`
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.places = mounted_pages(runtime)
        self._tenants = Tenants(runtime)
        folders = page_folders(runtime.services)
        self.assets = Assets({OWN: HERE / "assets", **folders})
        own = self._environment([HERE / "templates"])
        self._environments = {OWN: own}
        for owner, folder in folders.items():
            self._environments[owner] = self._environment([folder, HERE / "templates"], owner=owner)
        for place in self.places:
            self._check(place)

    def _check(self, place: MountedPage) -> None:
        """A template that is missing or can't be read is told at the start, not to a visitor."""
        environment = self._environments.get(place.owner)
        if environment is None:
            raise DeclarationError(
                f"{place.path} wants {place.page.template}, but {place.owner} has no pages/"
            )
        check_template(environment, place.page.template, path=place.path)

    def _environment(self, folders: list[Path], owner: str = OWN) -> Environment:
        made = environment_of(folders, clock=self.runtime.clock)
        made.globals.update(
            asset=lambda name, of=owner: self.assets.url(of, name),
            shell_asset=lambda name: self.assets.url(OWN, name), version=__version__, plots=plots,
        )  # fmt: skip
        return made

    # -- pages --------------------------------------------------------------------------------------

    async def show(self, place: MountedPage, request: AnyRequest) -> Response[str]:
        """A page with what it is asked for."""
        frame = self.frame(request)
        ask = PageRequest(
            caller=frame.caller, tenant_id=frame.tenant_id, query=dict(request.query_params),
            path={name: str(value) for name, value in request.path_params.items()},
        )  # fmt: skip
        data = await place.page.data(ask)
        if frame.all_tenants and "tenant_id" in data:
            frame = frame.enter(data["tenant_id"])
        title = str(data.get("title", place.page.title))
        tenants = await self._choice_of_tenants(frame, place.page)
        about = {
            "ask": ask, "live": list(place.page.live), "tenants": tenants, "kept": _kept(place.page, ask),
            **data, "title": title,
        }  # fmt: skip
        return self.html(place.page.template, about, frame, owner=place.owner)

    async def _choice_of_tenants(self, frame: Frame, page: Page) -> list[str]:
        if frame.any_tenant:
            return [*([ALL_TENANTS] if page.all_tenants else []), *await self._tenants.known()]
        roles = self.runtime.roles
        if roles is None or not is_person(frame.caller):
            return []
        return await roles.tenants(frame.caller.user_id or "")

    def html(
        self, template: str, data: Mapping[str, Any], frame: Frame, *, owner: str = OWN, status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response[str]:  # fmt: skip
        text = (
            self._environments[owner]
            .get_template(template)
            .render(
                {
                    "live": (),
                    "tenants": [],
                    "kept": {},
                    "frame": frame,
                    "link": frame.link,
                    "may": lambda role: has_role(frame.caller, role, frame.tenant_id),
                    **data,
                }
            )
        )
        return Response(
            text, media_type=MediaType.HTML, status_code=status, headers={**HEADERS, **(headers or {})}
        )

    def frame(self, request: AnyRequest) -> Frame:
        """What is said around this request's page, also where nobody is signed in."""
        state = request.scope["state"]
        caller: Caller = state.get("caller", ANONYMOUS)
        own, default = own_tenant(caller), str(state.get("default_tenant", default_tenant(caller)))
        tenant_id = str(state.get("tenant_id", own))
        path = request.scope["path"]
        bare = Frame(
            caller=caller, name=_name(caller), tenant_id=tenant_id, default_tenant=default,
            selected_tenant=str(state.get("selected_tenant", default)),
            role=caller.roles.get(own) or caller.roles.get(tenant_id, ""),
            any_tenant=privileged(caller), path=path, groups={},
            csrf=caller.csrf if isinstance(caller, SessionCaller) else "",
        )  # fmt: skip
        return msgspec.structs.replace(bare, groups=self._groups(bare))

    def _groups(self, frame: Frame) -> dict[str, list[NavLink]]:
        groups: dict[str, list[NavLink]] = {}
        for place in self.places:
            where = NO_TENANT if place.page.platform else frame.tenant_id
            if not place.page.nav or not meets(frame.caller, place.page.needs, where):
                continue
            link = NavLink(place.page.title, frame.link(place.path), frame.path == place.path)
            groups.setdefault(place.group, []).append(link)
        if meets(frame.caller, "viewer", frame.tenant_id):
            api = NavLink("API", frame.link(API), frame.path.startswith(API))
            groups.setdefault("Record", []).append(api)
        return groups

    # -- errors -------------------------------------------------------------------------------------

    def of_ours(self, request: AnyRequest, fault: HoldfastError) -> Response[str]:
        """An error as a page of the shell."""
        status = status_of(fault)
        if status == 500:
            return self.of_anything(request, fault)
        return self.error(request, status, fault.message)

    def of_litestar(self, request: AnyRequest, fault: HTTPException) -> Response[str]:
        if fault.status_code >= 500:
            return self.of_anything(request, fault)
        return self.error(request, fault.status_code, fault.detail)

    def of_anything(self, request: AnyRequest, fault: Exception) -> Response[str]:
        id = request.scope["state"].get("request_id", "")
        log.error("page failed", path=request.scope["path"], request_id=id, exc_info=fault)
        return self.error(request, 500, f"Something went wrong here; the log knows more under {id}.")

    def error(self, request: AnyRequest, status: int, message: str) -> Response[str]:
        title = error_title(status)
        data = {"title": title, "status": status, "message": message}
        return self.html("error.html", data, self.frame(request), status=status)


def _kept(page: Page, ask: PageRequest) -> dict[str, str]:
    """What a list was asked, for the same list of another tenant; one document is of one tenant."""
    return {name: value for name, value in ask.query.items() if page.nav and name not in ("tenant", "cursor")}


def _name(caller: Caller) -> str:
    return caller.name if isinstance(caller, SessionCaller) else caller.user_id or ""
