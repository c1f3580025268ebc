"""Shared by the surfaces for browsers and programs: the status of each error, forms, safe redirects."""

from __future__ import annotations

import math
from typing import Final
from urllib.parse import parse_qs, quote

from litestar.datastructures import Cookie

from holdfast import errors
from holdfast.errors import HoldfastError, InvalidError, LimitReachedError, RetryLaterError, TooLargeError

FORM_BYTES_MAX: Final = 10_000

SIGN_IN: Final = "/sign-in"
_PRINTABLE: Final = "".join(map(chr, range(33, 127)))
CONSENT_START: Final = "/oauth/start"
CONSENT_CALLBACK: Final = "/oauth/callback"
# The first class that fits decides, so narrow ones stand before wide ones.
_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (errors.TooLargeError, 413),
    (errors.BadCursorError, 400),
    (errors.InvalidError, 422),
    (errors.UnverifiedError, 401),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.JobFailedError, 409),
    (errors.LeaseLostError, 409),
    (errors.InProgressError, 409),
    (errors.LimitReachedError, 429),
    (errors.TooManyRequestsError, 429),
    (errors.RetryLaterError, 503),
)


def status_of(fault: HoldfastError) -> int:
    """The status of an error; 500 for those that are nobody's business outside."""
    return next((status for kind, status in _STATUSES if isinstance(fault, kind)), 500)


def retry_after(fault: HoldfastError) -> str | None:
    """Whole seconds for `Retry-After`, at least one, never too few; None where waiting is of no use."""
    after_s = fault.after_s if isinstance(fault, (RetryLaterError, LimitReachedError)) else None
    return None if after_s is None else str(max(1, math.ceil(after_s)))


def next_of(path: str, query: str = "") -> str:
    """Where to go on after signing in: a path of this site, never another's.

    Example: `next_of("//evil.example")` gives `/`
    """
    # Headers are ASCII, and so is a URL.
    whole = quote(f"{path}?{query}" if query else path, safe=_PRINTABLE, errors="replace")
    # Browsers read a backslash as a slash and drop control characters, so both could hide a host.
    foreign = whole.startswith("//") or "\\" in whole or any(ord(char) < 33 for char in path + query)
    return "/" if foreign or not whole.startswith("/") else whole


def cookie_name(name: str, *, secure: bool, path: str = "/") -> str:
    """A cookie's name; over https with the prefix by which browsers refuse one that another host has planted.

    Example: `cookie_name("holdfast_session", secure=True)` gives `__Host-holdfast_session`
    """
    prefix = "__Host-" if path == "/" else "__Secure-"
    return f"{prefix}{name}" if secure else name


def browser_cookie(name: str, value: str, *, max_age_s: float, secure: bool, path: str = "/") -> Cookie:
    """A cookie that scripts can't read and other sites' requests don't carry; an age of 0 removes it."""
    return Cookie(
        key=cookie_name(name, secure=secure, path=path), value=value, max_age=int(max_age_s), path=path,
        httponly=True, samesite="lax", secure=secure,
    )  # fmt: skip


def is_secure(public_url: str) -> bool:
    """Whether browsers come by https."""
    return public_url.startswith("https:")


def parse_form(body: bytes) -> dict[str, str]:
    """The fields of a small URL-encoded form; anything else is refused.

    Example: `parse_form(b"name=ann&next=%2F")` gives `{"name": "ann", "next": "/"}`
    """
    if len(body) > FORM_BYTES_MAX:
        raise TooLargeError(f"a form takes at most {FORM_BYTES_MAX:,} bytes")
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError:
        raise InvalidError("this is no form that can be read") from None
    return {name: values[-1] for name, values in fields.items()}


def start_url(public_url: str, token: str) -> str:
    """The URL of a start link, by which somebody connects an account."""
    return f"{_origin(public_url)}{CONSENT_START}?link={token}"


def callback_url(public_url: str) -> str:
    """The redirect URI of connections, to be registered with each provider."""
    return f"{_origin(public_url)}{CONSENT_CALLBACK}"


def _origin(public_url: str) -> str:
    if not public_url:
        raise errors.InvalidError("set HOLDFAST_PUBLIC_URL: providers send people back to it", "public_url")
    return public_url.rstrip("/")
