"""Redaction of secrets in stored values."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from holdfast.kit.vault.vault import FORMAT
from holdfast.outside_text import names_secret
from holdfast.plural import plural

MASK: Final = "••••••"
# Up to the last @: a password may contain an unescaped one.
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^/\s:@]*):[^/\s]+(?=@)")
_QUERY_PARAMETER: Final = re.compile(r"(?<=[?&])([\w.-]+)=([^&#\s]+)")
# Secrets by their form: API tokens, signing secrets, bearer tokens.
_TOKEN: Final = re.compile(r"\bhf_[a-z0-9]{32,}|\bwhsec_[\w+/=-]{16,}|\b[Bb]earer +[\w.~+/=-]{16,}")
_SEALED: Final = f"{FORMAT}."


def redact_value(value: Any, hidden: Collection[str] = ()) -> Any:
    """The value as JSON values, with secrets masked and bytes shown by their size.

    Masked are sealed values, fields named in `hidden`, texts under a secret's name, also in a URL, passwords
    in URLs, and tokens by their form. Whether there is a value stays visible.

    Example: `redact_value({"name": "rms", "token": "ya29"})` gives `{"name": "rms", "token": "••••••"}`
    """
    if isinstance(value, dict):
        return {
            name: _redact(one, secret=name in hidden or names_secret(name)) for name, one in value.items()
        }
    return _redact(value, secret=False)


def _redact(value: Any, *, secret: bool) -> Any:
    if isinstance(value, dict):
        return {name: _redact(one, secret=secret or names_secret(name)) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redact(one, secret=secret) for one in value]
    if isinstance(value, str):
        return _text(value, secret=secret)
    if isinstance(value, bytes):
        return MASK if secret and value else plural(len(value), "byte")
    return value.isoformat() if isinstance(value, datetime) else value


def _text(value: str, *, secret: bool) -> str:
    if value and (secret or value.startswith(_SEALED)):
        return MASK
    value = _TOKEN.sub(MASK, _URL_PASSWORD.sub(rf"\1:{MASK}", value))
    return _QUERY_PARAMETER.sub(
        lambda match: f"{match[1]}={MASK}" if names_secret(match[1]) else match[0], value
    )
