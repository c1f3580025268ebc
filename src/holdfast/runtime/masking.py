"""What people are shown of stored values: everything but secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from holdfast.kit.vault.vault import FORMAT

MASK: Final = "••••••"
# A name that holds one of these words names a secret, also in what no declaration knows: headers, inputs.
_SECRET: Final = frozenset({
    "authorization", "cookie", "credential", "credentials", "csrf", "passphrase", "password", "secret",
    "secrets", "signature", "token", "tokens", "verifier",
})  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SEALED: Final = f"{FORMAT}."


def masked(value: Any, hidden: Collection[str] = ()) -> Any:
    """The value as JSON knows it, with secrets masked and bytes told by their size.

    Secret is what the vault sealed, what stands at a path in `hidden` (as stored, lists passed over), and any
    text under a name that says so. Whether there is one at all stays to be seen.

    Example: `masked({"name": "rms", "secrets": [{"sealed": "hf1.…"}]})`
    """
    return _masked(value, frozenset(hidden), path="", secret=False)


def names_secret(name: str) -> bool:
    """Whether a field of this name holds a secret, by the words in it."""
    return any(word.lower() in _SECRET for word in _WORD.findall(name))


def _masked(value: Any, hidden: frozenset[str], *, path: str, secret: bool) -> Any:
    secret = secret or path in hidden
    if isinstance(value, dict):
        return {
            name: _masked(one, hidden, path=f"{path}.{name}".lstrip("."), secret=secret or names_secret(name))
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(one, hidden, path=path, secret=secret) for one in value]
    if isinstance(value, str | bytes) and value and (secret or _is_sealed(value)):
        return MASK
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    return value.isoformat() if isinstance(value, datetime) else value


def _is_sealed(value: str | bytes) -> bool:
    return isinstance(value, str) and value.startswith(_SEALED)
