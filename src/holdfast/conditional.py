"""Responses that a cache may keep: with an entity tag, 304 for an unchanged copy, gzip where it is taken."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from litestar import Response

GZIP_BYTES_MIN: Final = 1_000
_TEXT: Final = re.compile(r"text/|.*(json|xml|javascript|svg)")
_WITHOUT_GZIP: Final = re.compile(r"(gzip|\*)\s*;\s*q=0(\.0*)?")


class Representation:
    """A body with its media type; its tag and compressed form are computed once: keep it for hot pages.

    Example: `Representation(b"{}", "application/json")`
    """

    def __init__(self, body: bytes, media_type: str) -> None:
        self.body, self.media_type = body, media_type

    @cached_property
    def tag(self) -> str:
        return f'W/"{hashlib.blake2b(self.body, digest_size=12).hexdigest()}"'

    @cached_property
    def compressed(self) -> bytes | None:
        """The body as gzip; None where that is of no use."""
        if len(self.body) < GZIP_BYTES_MIN or not _TEXT.match(self.media_type):
            return None
        return gzip.compress(self.body, 6, mtime=0)


def conditional_response(
    headers: Mapping[str, str], shown: Representation, *, cache_control: str, vary: str = ""
) -> Response[Any]:
    """The response to a GET with these headers: the body, or 304 where the client's copy is still good.

    Example: `conditional_response(request.headers, shown, cache_control="public, no-cache")`
    """
    varies = f"{vary}, accept-encoding" if vary else "accept-encoding"
    sent = {"etag": shown.tag, "cache-control": cache_control, "vary": varies}
    if _has_copy(headers.get("if-none-match", ""), shown.tag):
        return Response(b"", status_code=304, headers=sent, media_type=shown.media_type)
    body = shown.body
    if takes_gzip(headers.get("accept-encoding", "")) and shown.compressed is not None:
        body, sent["content-encoding"] = shown.compressed, "gzip"
    return Response(body, headers=sent, media_type=shown.media_type)


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding takes gzip.

    Example: `takes_gzip("br, gzip;q=0.5")` gives `True`
    """
    codings = [one.strip().lower() for one in accepted.split(",")]
    wanted = [one for one in codings if one.partition(";")[0].strip() in ("gzip", "*")]
    return bool(wanted) and not _WITHOUT_GZIP.fullmatch(wanted[0])


def _has_copy(if_none_match: str, tag: str) -> bool:
    known = [one.strip() for one in if_none_match.split(",")]
    return "*" in known or tag in known or tag.removeprefix("W/") in known
