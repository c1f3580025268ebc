"""Responses that a cache may keep: with an entity tag, 304 for an unchanged copy, gzip where it is taken."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from litestar import Response

GZIP_BYTES_MIN: Final = 1_000
# Pages that many ask for are compressed once.
COMPRESSED_MAX: Final = 128
_TEXT: Final = re.compile(r"text/|.*(json|xml|javascript|svg)")
_WITHOUT_GZIP: Final = re.compile(r"(gzip|\*)\s*;\s*q=0(\.0*)?")


def conditional_response(
    headers: Mapping[str, str],
    body: bytes,
    *,
    media_type: str,
    cache_control: str,
    vary: str = "",
) -> Response[Any]:
    """The response to a GET with these headers: the body, or 304 where the client's copy is still good.

    Example: `conditional_response(headers, body, media_type="text/html", cache_control="public, no-cache")`
    """
    tag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    varies = ", ".join(filter(None, (vary, "accept-encoding")))
    sent = {"etag": tag, "cache-control": cache_control, "vary": varies}
    if _has_copy(headers.get("if-none-match", ""), tag):
        return Response(None, status_code=304, headers=sent)
    compressible = len(body) >= GZIP_BYTES_MIN and _TEXT.match(media_type)
    if compressible and takes_gzip(headers.get("accept-encoding", "")):
        body, sent["content-encoding"] = _compress(body), "gzip"
    return Response(body, headers=sent, media_type=media_type)


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


@lru_cache(COMPRESSED_MAX)
def _compress(body: bytes) -> bytes:
    return gzip.compress(body, 6, mtime=0)
