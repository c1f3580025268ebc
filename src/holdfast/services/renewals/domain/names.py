"""Property names as document ids."""

from __future__ import annotations

import hashlib


def name_key(name: str, tenant_id: str) -> str:
    """A name as an id: the same for the same words of one portfolio, whatever their case and length."""
    words = " ".join(name.split()).casefold()
    return f"{tenant_id}:{hashlib.sha256(words.encode()).hexdigest()[:32]}"
