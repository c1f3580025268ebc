"""Jinja environments of pages, compiled once in a process, and the headers every page is sent with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from jinja2 import BytecodeCache, ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, TemplateError
from jinja2.bccache import Bucket

from holdfast.clock import Clock
from holdfast.errors import DeclarationError
from holdfast.plural import noun_for, plural
from holdfast.rendering import formatting
from holdfast.service import Service

PAGES_FOLDER: Final = "pages"
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Without a referrer a form's own origin would be told as null, and be taken for another site's.
    "referrer-policy": "same-origin",
}
_TITLES: Final = {
    400: "Bad request",
    401: "Sign in",
    403: "Forbidden",
    404: "Not found",
    410: "Link expired",
    422: "Invalid input",
    429: "Too many requests",
    503: "Service unavailable",
}


class _Compiled(BytecodeCache):
    """Templates are compiled once in a process, however many applications it makes."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._kept:
            bucket.bytecode_from_string(self._kept[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key] = bucket.bytecode_to_string()


_COMPILED: Final = _Compiled()


def environment_of(folders: Sequence[Path], *, clock: Clock) -> Environment:
    """An environment over these folders, where the first that has a template wins, with the usual filters."""
    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(folder) for folder in folders]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        bytecode_cache=_COMPILED,
    )  # fmt: skip
    made.filters.update(
        ago=lambda at: formatting.ago(at, clock.now()), span=formatting.span, tone=formatting.tone,
        number=formatting.number, plural=plural, noun_for=noun_for,
        body=formatting.body, pretty=formatting.pretty,
    )  # fmt: skip
    return made


def check_template(environment: Environment, template: str, *, path: str) -> None:
    """Refuse a template that is missing or malformed when the process starts, not when somebody asks."""
    try:
        environment.get_template(template)
    except TemplateError as fault:
        raise DeclarationError(f"{path}: {template} can't be used: {fault}") from None


def page_folders(services: Sequence[Service]) -> dict[str, Path]:
    """The folders of templates, scripts and styles by the service's address, where it has one."""
    folders = {service.address: _folder_of(service) for service in services}
    return {address: folder for address, folder in folders.items() if folder.is_dir()}


def _folder_of(service: Service) -> Path:
    module = sys.modules[service.build.__module__]
    return Path(module.__file__ or "").parent / PAGES_FOLDER


def error_title(status: int) -> str:
    """The heading of an error page."""
    return _TITLES.get(status, "Something went wrong")
