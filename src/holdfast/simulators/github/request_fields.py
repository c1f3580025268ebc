"""Fields of requests: numbers, texts, pages."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from holdfast.simulators.github.refusals import ApiRefusal, invalid

PAGE_MAX: Final = 100


def int_of(text: str) -> int:
    if not text.isdecimal():
        raise ApiRefusal(404)
    return int(text)


def text_of(body: dict[str, Any], field: str, resource: str) -> str:
    value = body.get(field)
    if not isinstance(value, str) or not value:
        raise invalid(resource, field, "missing_field")
    return value


def page_of(request: web.Request, found: list[Any]) -> list[Any]:
    size = min(int_of(request.query.get("per_page", "30")), PAGE_MAX)
    start = (int_of(request.query.get("page", "1")) - 1) * size
    return found[start : start + size]
