"""Errors as HTTP answers: one table, in the format of the service that was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import structlog
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

from holdfast.error_format import PLATFORM_FORMAT, ErrorBody, ErrorFormat, ErrorShape
from holdfast.errors import HoldfastError
from holdfast.http.validation import describe_problems
from holdfast.service import Service
from holdfast.web import SIGN_IN, retry_after, status_of

log = structlog.get_logger("holdfast.http")

_CODES: Final = {
    400: "malformed", 401: "unverified", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    413: "too_large", 415: "unsupported_media_type", 422: "invalid", 429: "limit_reached",
    503: "retry_later",
}  # fmt: skip
_INTERNAL: Final = "something went wrong here; the request id finds it in the log"


class SignInNeeded(Exception):
    """A person wants a page and has not signed in; `after` is where to go on then."""

    def __init__(self, after: str) -> None:
        super().__init__(after)
        self.after = after


class ErrorFormats:
    """The error format of each request: that of the service whose route or path it is, or the platform's."""

    def __init__(self, services: Sequence[Service], *, at_root: bool) -> None:
        self._by_name = {service.name: service.errors for service in services}
        self._by_path = {f"/{service.address}/": service.errors for service in services}
        self._otherwise = services[0].errors if at_root else PLATFORM_FORMAT

    @property
    def responses(self) -> list[type[ErrorShape]]:
        return [PLATFORM_FORMAT.response, *(one.response for one in self._by_name.values())]

    def of(self, scope: Mapping[str, Any]) -> ErrorFormat:
        handler = scope.get("route_handler")
        if handler is not None:
            return self._by_name.get(handler.opt.get("service", ""), PLATFORM_FORMAT)
        found = (one for prefix, one in self._by_path.items() if scope["path"].startswith(prefix))
        return next(found, self._otherwise)


def encode_error(body: ErrorBody, form: ErrorFormat = PLATFORM_FORMAT) -> bytes:
    """The response's bytes in a format."""
    return msgspec.json.encode(form.response.of(body))


def status_in(fault: HoldfastError, form: ErrorFormat) -> int:
    """The status of an error: as the format declares it, or the platform's."""
    declared = (status for kind, status in form.statuses.items() if isinstance(fault, kind))
    return next(declared, status_of(fault))


def answer_to(fault: HoldfastError, request_id: str) -> ErrorBody:
    if status_of(fault) == 500:
        return internal(request_id)
    return ErrorBody(fault.code, fault.message, fault.details, request_id)


def internal(request_id: str) -> ErrorBody:
    """What is said of an error that only the log may know more of."""
    return ErrorBody("internal", _INTERNAL, None, request_id)


def refusal(code: str, message: str, request_id: str) -> ErrorBody:
    return ErrorBody(code, message, None, request_id)


def _request_id(request: Request[Any, Any, Any]) -> str:
    return str(request.scope["state"].get("request_id", ""))


def _of_ours(request: Request[Any, Any, Any], fault: HoldfastError) -> Response[bytes]:
    status = status_in(fault, _format(request))
    if status == 500:
        log.error("request failed", path=request.url.path, request_id=_request_id(request), exc_info=fault)
    headers = {"retry-after": after} if (after := retry_after(fault)) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return _answer(request, answer_to(fault, _request_id(request)), status, headers)


def _of_litestar(request: Request[Any, Any, Any], fault: HTTPException) -> Response[bytes]:
    id, status = _request_id(request), fault.status_code
    if request.scope["state"].get("hung_up"):
        # Nobody reads this; it only keeps a client's doing out of the log of our own faults.
        return _answer(request, refusal("malformed", "the request broke off before its end", id), 400, {})
    if status >= 500 and status != 503:
        log.error("request failed", path=request.url.path, request_id=id, exc_info=fault)
        return _answer(request, internal(id), 500, {})
    # What does not fit the route's declaration could be read, so it is 422, not 400.
    if isinstance(fault, ValidationException):
        message, details = describe_problems(request.route_handler, fault.extra)
        return _answer(request, ErrorBody("invalid", message, details, id), 422, {})
    code = _CODES.get(status, "error")
    return _answer(request, refusal(code, fault.detail, id), status, dict(fault.headers or {}))


def _of_nobody(request: Request[Any, Any, Any], fault: SignInNeeded) -> Response[None]:
    return Response(
        None, status_code=303, headers={"location": f"{SIGN_IN}?{urlencode({'next': fault.after})}"}
    )


def _of_depth(request: Request[Any, Any, Any], fault: RecursionError) -> Response[bytes]:
    """A body made of brackets exhausts the decoder; that is its sender's fault, not ours."""
    log.warning("request nested too deeply", path=request.url.path, request_id=_request_id(request))
    return _answer(
        request, refusal("malformed", "the body is nested too deeply", _request_id(request)), 400, {}
    )


def _of_coding(request: Request[Any, Any, Any], fault: UnicodeDecodeError) -> Response[bytes]:
    """Bytes that are no text where JSON wants text: the same."""
    log.warning("request is no UTF-8", path=request.url.path, request_id=_request_id(request))
    return _answer(request, refusal("malformed", "the body is not UTF-8", _request_id(request)), 400, {})


def _of_anything(request: Request[Any, Any, Any], fault: Exception) -> Response[bytes]:
    log.error("request failed", path=request.url.path, request_id=_request_id(request), exc_info=fault)
    return _answer(request, internal(_request_id(request)), 500, {})


def _format(request: Request[Any, Any, Any]) -> ErrorFormat:
    formats: ErrorFormats = request.app.state["error_formats"]
    return formats.of(request.scope)


def _answer(
    request: Request[Any, Any, Any], body: ErrorBody, status: int, headers: dict[str, str]
) -> Response[bytes]:
    encoded = encode_error(body, _format(request))
    return Response(encoded, status_code=status, headers=headers, media_type=MediaType.JSON)


def exception_handlers() -> ExceptionHandlersMap:
    """How the application answers whatever a route raises."""
    return {
        HoldfastError: _of_ours, HTTPException: _of_litestar, SignInNeeded: _of_nobody,
        RecursionError: _of_depth, UnicodeDecodeError: _of_coding, Exception: _of_anything,
    }  # fmt: skip
