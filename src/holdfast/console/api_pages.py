"""The API explorer at `/docs`: every operation that `/openapi.json` describes, with a form to try it."""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from holdfast.console.api_reference import ApiReference
from holdfast.console.shell import API, AnyRequest, Shell
from holdfast.service import PageRequest

# As `/openapi.json` itself.
_DECLARED: Final = {"needs": "viewer", "area": "openapi", "action": "read", "page": True}


class ApiPages:
    """The list of operations, and a page for each."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def pages(self) -> list[HTTPRouteHandler]:
        @get(API, opt=_DECLARED, include_in_schema=False)
        async def operations(request: AnyRequest) -> Response[str]:
            return self._list(request)

        @get(f"{API}/{{operation_id:str}}", opt=_DECLARED, include_in_schema=False)
        async def operation(request: AnyRequest, operation_id: FromPath[str]) -> Response[str]:
            return self._show(request, operation_id)

        return [operations, operation]

    def _list(self, request: AnyRequest) -> Response[str]:
        frame = self._shell.frame(request)
        ask = PageRequest(caller=frame.caller, tenant_id=frame.tenant_id, query=dict(request.query_params))
        words = ask.text("q")
        data = {"title": "API", "groups": self._reference(request).groups(words), "words": words}
        return self._shell.html("api.html", data, frame)

    def _show(self, request: AnyRequest, operation_id: str) -> Response[str]:
        operation = self._reference(request).operation(operation_id)
        origin = self._shell.runtime.config.public_url or str(request.base_url)
        data = {"title": operation.summary, "operation": operation, "origin": origin.rstrip("/")}
        return self._shell.html("api_operation.html", data, self._shell.frame(request))

    def _reference(self, request: AnyRequest) -> ApiReference:
        return ApiReference(request.app.state.openapi())
