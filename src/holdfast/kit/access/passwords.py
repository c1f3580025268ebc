"""Passwords: hashed with argon2id, away from the event loop, at the same cost for known and unknown names."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from holdfast.errors import InvalidError

CHARACTERS_MIN: Final = 10
CHARACTERS_MAX: Final = 500
# Each hash takes 64 MiB while it runs: many logins at once queue instead of taking the memory.
CONCURRENCY_MAX: Final = 2

_hasher: Final = PasswordHasher()
_threads: Final = ThreadPoolExecutor(CONCURRENCY_MAX, thread_name_prefix="holdfast-passwords")


def check_password(password: str) -> None:
    """Refuse a password that is too short to be safe, or too long to hash."""
    if not CHARACTERS_MIN <= len(password) <= CHARACTERS_MAX:
        raise InvalidError(f"a password has {CHARACTERS_MIN} to {CHARACTERS_MAX} characters", "password")


async def hash_password(password: str) -> str:
    """Return the argon2id hash of a password."""
    check_password(password)
    return await asyncio.get_running_loop().run_in_executor(_threads, _hasher.hash, _bytes(password))


async def verify_password(password: str, stored: str | None) -> bool:
    """Whether the password matches the stored hash; None takes as long and is False."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, _verify, password[:CHARACTERS_MAX], stored)


async def rehash_password(password: str, stored: str) -> str:
    """A new hash of a password whose stored hash took less work than advised now; empty where it did not."""
    return await hash_password(password) if _hasher.check_needs_rehash(stored) else ""


def _verify(password: str, stored: str | None) -> bool:
    try:
        _hasher.verify(stored or _dummy_hash(), _bytes(password))
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None


@functools.cache
def _dummy_hash() -> str:
    return _hasher.hash("nobody's")


def _bytes(password: str) -> bytes:
    return password.encode(errors="surrogatepass")
