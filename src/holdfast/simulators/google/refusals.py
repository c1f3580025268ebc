"""Google's error responses: one format for Calendar, another for Sheets."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from holdfast.simulators.server import json_response

_USAGE_LIMITS: Final = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded"}
)
_REASONS: Final = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    409: "duplicate",
    410: "deleted",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "backendError",
    503: "backendError",
}
_NAMES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Refusal(ValueError):
    """An error response; `where` is the parameter or header at fault."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        where: str = "",
        retry_after_s: int | None = None,
    ) -> None:
        self.status = status
        self.reason = reason or _REASONS.get(status, "backendError")
        self.message = message or self.reason
        self.where = where
        self.retry_after_s = retry_after_s
        super().__init__(self.message)

    def for_calendar(self) -> web.Response:
        detail = {"domain": self._domain(), "reason": self.reason, "message": self.message}
        if self.where:
            kind = "header" if self.where[0].isupper() else "parameter"
            detail |= {"locationType": kind, "location": self.where}
        return self._response({"errors": [detail], "code": self.status, "message": self.message})

    def for_sheets(self) -> web.Response:
        name = _NAMES.get(self.status, "UNKNOWN")
        return self._response({"code": self.status, "message": self.message, "status": name})

    def _domain(self) -> str:
        if self.reason in _USAGE_LIMITS:
            return "usageLimits"
        return "calendar" if self.reason in ("fullSyncRequired", "updatedMinTooLongAgo") else "global"

    def _response(self, error: dict[str, object]) -> web.Response:
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="https://accounts.google.com/", error="invalid_token"'
        return json_response({"error": error}, status=self.status, headers=headers)
