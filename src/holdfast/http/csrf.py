"""Where a browser's request comes from: acts with a session must come from this site's own pages."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import ForbiddenError

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
CSRF_HEADER: Final = "x-csrf-token"
# "none" is a person's own doing: a typed address, a bookmark.
_OURS: Final = ("same-origin", "none")


def same_origin(headers: Mapping[str, str], *, public_url: str) -> bool | None:
    """Whether the request comes from this site's own pages; None where the client does not tell.

    Browsers say it in `Sec-Fetch-Site`, or over plain HTTP only in `Origin`; other clients say nothing.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in _OURS
    origin = headers.get("origin")
    if origin is None:
        return None
    return _host(origin) in {headers.get("host", "").lower(), _host(public_url)} - {""}


def check_origin(headers: Mapping[str, str], *, public_url: str) -> None:
    """Refuse what another site made a browser send."""
    if same_origin(headers, public_url=public_url) is False:
        raise ForbiddenError("the request was sent by another site's page; act on this site's own pages")


def check_session_act(headers: Mapping[str, str], csrf: str, *, public_url: str) -> None:
    """Refuse an act with a session that this site's own page did not make."""
    if same_origin(headers, public_url=public_url) is not True:
        raise ForbiddenError("an act with a session must come from this site's own pages")
    given = headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), csrf.encode()):
        raise ForbiddenError(f"send the page's token in {CSRF_HEADER}; load the page again for a fresh one")


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
