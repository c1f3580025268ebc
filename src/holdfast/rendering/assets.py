"""Scripts and styles: read once, served under a name that changes with them, so browsers may keep them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from holdfast.conditional import Representation, conditional_response
from holdfast.errors import NotFoundError

KINDS: Final = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
_FOREVER: Final = "public, max-age=31536000, immutable"


class Assets:
    """The assets of the shell and of every service, each owner's under one digest of all its files.

    One digest for all, so that a module finds its neighbours by `./name.js`.

    Example: `Assets({"console": folder}).url("console", "console.css")`
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._urls: dict[tuple[str, str], str] = {}
        self._files: dict[str, Representation] = {}
        for owner, folder in folders.items():
            self._add(owner, folder)

    def _add(self, owner: str, folder: Path) -> None:
        found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in KINDS}
        digest = hashlib.sha256(b"".join(name.encode() + data for name, data in found.items())).hexdigest()
        for name, data in found.items():
            place = f"{owner}/{digest[:12]}/{name}"
            self._urls[owner, name] = f"/assets/{place}"
            self._files[place] = Representation(data, KINDS[Path(name).suffix])

    def url(self, owner: str, name: str) -> str:
        """Where a file is served; `KeyError` tells a template's author that there is none."""
        return self._urls[owner, name]

    def route(self) -> HTTPRouteHandler:
        @get("/assets/{file:path}", opt={"needs": "public", "limited": False}, include_in_schema=False)
        async def asset(request: Request[Any, Any, Any], file: FromPath[str]) -> Response[Any]:
            found = self._files.get(file.lstrip("/"))
            if found is None:
                raise NotFoundError("no such asset; load the page again")
            return conditional_response(request.headers, found, cache_control=_FOREVER)

        return asset
