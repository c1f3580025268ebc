"""What people are shown of stored values: everything but secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

from holdfast.kit.vault.vault import FORMAT

MASK: Final = "••••••"
# A name that holds one of these words names a secret, also in what no declaration knows: headers, inputs.
_SECRET: Final = frozenset({
    "apikey", "authorization", "cookie", "credential", "credentials", "csrf", "jwt", "passphrase", "passwd",
    "password", "secret", "secrets", "signature", "token", "tokens", "verifier",
})  # fmt: skip
# Most keys are ids; these are not.
_SECRET_KEYS: Final = frozenset({"access", "api", "private", "signing"})
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Up to the last @: whoever wrote the address may have left one in the password as it is.
_IN_ADDRESS: Final = re.compile(r"(?<=://)([^/\s:@]*):[^/\s]+(?=@)")
_IN_QUERY: Final = re.compile(r"(?<=[?&])([\w.-]+)=([^&#\s]+)")
# What is a secret wherever it stands: an API token, a signing secret, whatever lets somebody in.
_BY_ITSELF: Final = re.compile(r"\bhf_[a-z0-9]{32,}|\bwhsec_[\w+/=-]{16,}|\b[Bb]earer +[\w.~+/=-]{16,}")
_SEALED: Final = f"{FORMAT}."


def redact_value(value: Any, hidden: Collection[str] = ()) -> Any:
    """The value as JSON knows it, with secrets masked and bytes told by their size.

    Secret is what the vault sealed, what stands in a field named in `hidden`, any text under a name that says
    so, also in an address, a password there, and a token that is known by its look. Whether there is one at
    all stays to be seen.

    Example: `masked({"name": "rms", "token": "ya29"})` gives `{"name": "rms", "token": "••••••"}`
    """
    if isinstance(value, dict):
        return {
            name: _masked(one, secret=name in hidden or names_secret(name)) for name, one in value.items()
        }
    return _masked(value, secret=False)


def names_secret(name: str) -> bool:
    """Whether a field of this name holds a secret, by the words in it."""
    words = [word.lower() for word in _WORD.findall(name)]
    return any(word in _SECRET for word in words) or any(
        last in ("key", "keys") and first in _SECRET_KEYS for first, last in pairwise(words)
    )


def _masked(value: Any, *, secret: bool) -> Any:
    if isinstance(value, dict):
        return {name: _masked(one, secret=secret or names_secret(name)) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(one, secret=secret) for one in value]
    if isinstance(value, str):
        return _text(value, secret=secret)
    if isinstance(value, bytes):
        return MASK if secret and value else f"{len(value):,} bytes"
    return value.isoformat() if isinstance(value, datetime) else value


def _text(value: str, *, secret: bool) -> str:
    if value and (secret or value.startswith(_SEALED)):
        return MASK
    value = _BY_ITSELF.sub(MASK, _IN_ADDRESS.sub(rf"\1:{MASK}", value))
    return _IN_QUERY.sub(lambda found: f"{found[1]}={MASK}" if names_secret(found[1]) else found[0], value)
