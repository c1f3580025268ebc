"""Where every page of the console is: the shell's own and those of the services, found by their folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.console.pages import groups
from holdfast.errors import DeclarationError
from holdfast.kit.access.authorization import PERSON
from holdfast.model.access import ROLES
from holdfast.runtime import Runtime
from holdfast.service import Page

HOME: Final = "/console"
OWN: Final = "console"
_NEEDS: Final = (PERSON, *ROLES)
_PATH: Final = re.compile(r"(/([a-z0-9._-]+|\{[a-z_]+\}))*")


class MountedPage(msgspec.Struct, frozen=True):
    """A page where it is served: below its owner, in a group of the navigation."""

    owner: str
    group: str
    path: str
    page: Page

    @property
    def route(self) -> str:
        """The path as the router wants it."""
        return re.sub(r"\{([a-z_]+)\}", r"{\1:str}", self.path)


def mounted_pages(runtime: Runtime) -> list[MountedPage]:
    """All pages; a declaration that can't be served is refused when the process starts."""
    own = [MountedPage(OWN, group, HOME + page.path, page) for group, page in groups(runtime)]
    found = [*own, *_of_services(runtime)]
    seen: set[str] = set()
    for place in found:
        _check(place)
        if place.path in seen:
            raise DeclarationError(f"two pages at {place.path}")
        seen.add(place.path)
    return found


def _of_services(runtime: Runtime) -> Iterator[MountedPage]:
    for service in runtime.services:
        group = service.name.replace("_", " ").capitalize()
        for page in runtime.parts[service.name].pages:
            yield MountedPage(service.address, group, f"{HOME}/{service.address}{page.path}", page)


def _check(place: MountedPage) -> None:
    page = place.page
    if not _PATH.fullmatch(page.path):
        raise DeclarationError(f"page {page.path!r} of {place.owner}: write it as in /runs/{{run_id}}")
    if page.needs not in _NEEDS:
        raise DeclarationError(f"page {place.path} needs one of {', '.join(_NEEDS)}, not {page.needs!r}")
    if page.nav and "{" in page.path:
        raise DeclarationError(
            f"page {place.path} has parameters, so it can't be in the navigation: nav=False"
        )
