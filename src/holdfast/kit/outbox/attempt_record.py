"""The request and response of an attempt as they are recorded: bounded text without secrets. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from holdfast.clock import to_us
from holdfast.kit.outbox.models import (
    EXCERPT_BYTES_MAX,
    HEADERS_CHARACTERS_MAX,
    URL_CHARACTERS_MAX,
    Attempt,
    Delivery,
)
from holdfast.kit.outbox.signing import escape_id
from holdfast.outside_text import MASK, clean_text, mask_urls, names_secret

METHOD: Final = "POST"
CONTENT_TYPE: Final = "content-type"
WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
# Follow from the delivery and the attempt's time, so they are not stored.
DERIVED: Final = frozenset({CONTENT_TYPE, WEBHOOK_ID, WEBHOOK_TIMESTAMP})

Header = tuple[str, str]


def recorded_url(url: str) -> str:
    """The URL as an attempt records it: its password and query values masked."""
    return clean_text(mask_urls(url), characters_max=URL_CHARACTERS_MAX)


def recorded_headers(headers: Iterable[Header], *, without: Collection[str] = ()) -> str:
    """The headers as an attempt records them, a line each; values under a secret's name are masked."""
    lines = [
        f"{name}: {MASK if _is_secret(name) else value}" for name, value in headers if name not in without
    ]
    return clean_text(mask_urls("\n".join(lines)), characters_max=HEADERS_CHARACTERS_MAX)


@lru_cache(maxsize=64)
def recorded_response(headers: tuple[Header, ...], excerpt: bytes) -> tuple[str, str]:
    """The headers and excerpt of a response, which receivers mostly repeat, as an attempt records them."""
    return recorded_headers(headers), clean_text(excerpt, characters_max=EXCERPT_BYTES_MAX)


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    """A signature proves one message and reveals no secret; receivers' problems are found by it."""
    return names_secret(name) and "signature" not in name.lower()


def read_headers(recorded: str) -> list[Header]:
    """The headers of a recorded text."""
    return [
        (name, value) for name, _, value in (line.partition(": ") for line in recorded.split("\n")) if name
    ]


def request_headers(delivery: Delivery, attempt: Attempt) -> list[Header]:
    """The headers that an attempt sent, besides `host` and `content-length`; none where nothing was sent."""
    if attempt.url and not attempt.request_headers:
        return []
    return [
        (CONTENT_TYPE, delivery.content_type),
        (WEBHOOK_ID, escape_id(delivery.event_id)),
        (WEBHOOK_TIMESTAMP, str(to_us(attempt.at) // 1_000_000)),
        *read_headers(attempt.request_headers),
    ]
