"""Text from outside, made fit to be stored: one place for what others send, answer or raise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final

MASK: Final = "***"
# PostgreSQL's JSON functions fail on U+0000 in any row they read; a lone surrogate is no text at all.
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_URL: Final = re.compile(r"(?P<site>[a-zA-Z][a-zA-Z0-9+.-]*://)(?P<rest>[^\s\"'<>]+)")
_USER: Final = re.compile(r"^[^/?#]*@")
_VALUE: Final = re.compile(r"(?P<name>(?:^|[&;])[^=&;#]*=)[^&;#]*")
# A name with one of these words is a secret's, also in undeclared data: headers, inputs.
_SECRET: Final = frozenset({
    "apikey", "authorization", "cookie", "credential", "credentials", "csrf", "jwt", "passphrase", "passwd",
    "password", "secret", "secrets", "signature", "token", "tokens", "verifier",
})  # fmt: skip
# Most keys are ids; these are not.
_SECRET_KEYS: Final = frozenset({"access", "api", "private", "signing"})
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def clean_text(text: str | bytes, *, characters_max: int) -> str:
    """The text without control characters, cut to a length; bytes are read as UTF-8.

    Example: `clean_text(b"out of\\x00order", characters_max=100)` gives `out of\ufffdorder`
    """
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
    cut = decoded[:characters_max]
    # What is printable has nothing unfit, and most text is.
    return cut if cut.isprintable() else _UNFIT.sub("\ufffd", cut)


def error_text(fault: BaseException, *, characters_max: int) -> str:
    """The message of an error, or its class where it has none, as `clean_text`."""
    return clean_text(str(fault) or type(fault).__name__, characters_max=characters_max)


def mask_urls(text: str) -> str:
    """The text with the user names, passwords and query values of its URLs masked.

    Example: `mask_urls("https://a.example/hook?sig=abc")` gives `https://a.example/hook?sig=***`
    """
    return _URL.sub(_mask, text) if "://" in text else text


def _mask(url: re.Match[str]) -> str:
    rest, mark, query = _USER.sub(f"{MASK}@", url["rest"]).partition("?")
    masked = _VALUE.sub(rf"\g<name>{MASK}", query) if "=" in query else MASK
    return url["site"] + rest + mark + (masked if mark else "")


def clean_value(value: Any, *, characters_max: int) -> Any:
    """A JSON value whose texts are clean and have no secrets in their URLs."""
    clean = partial(clean_value, characters_max=characters_max)
    if isinstance(value, str):
        return mask_urls(clean_text(value, characters_max=characters_max))
    if isinstance(value, Mapping):
        return {clean(key): clean(one) for key, one in value.items()}
    return [clean(one) for one in value] if isinstance(value, (list, tuple)) else value


def names_secret(name: str) -> bool:
    """Whether a field of this name holds a secret, by the words in it."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _SECRET for word in words) or any(
        last in ("key", "keys") and first in _SECRET_KEYS for first, last in pairwise(words)
    )
