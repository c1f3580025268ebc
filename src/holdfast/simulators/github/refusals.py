"""GitHub's error responses."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from holdfast.simulators.server import json_response

DOCUMENTATION: Final = "https://docs.github.com/rest"


class ApiRefusal(ValueError):
    """An error response; `errors` say which field of which resource is at fault."""

    def __init__(
        self, status: int, message: str = "Not Found", *, errors: list[dict[str, str]] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message = status, message
        self.errors, self.headers = errors or [], headers or {}

    def response(self) -> web.Response:
        body: dict[str, Any] = {
            "message": self.message, "documentation_url": DOCUMENTATION, "status": str(self.status),
        }  # fmt: skip
        if self.errors:
            body["errors"] = self.errors
        return json_response(body, status=self.status, headers=self.headers)


def invalid(resource: str, field: str, code: str = "invalid", message: str = "") -> ApiRefusal:
    """422 with the field at fault."""
    error = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return ApiRefusal(422, "Validation Failed", errors=[error])
