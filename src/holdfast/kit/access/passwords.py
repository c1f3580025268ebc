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
# Each takes 64 MiB while it runs: a crowd at the door waits in line instead of taking the memory.
AT_ONCE_MAX: Final = 2

_hasher: Final = PasswordHasher()
_threads: Final = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="holdfast-passwords")


def check_password(password: str) -> None:
    """Refuse what is too short to keep anybody out, or too long to hash."""
    if not CHARACTERS_MIN <= len(password) <= CHARACTERS_MAX:
        raise InvalidError(f"a password has {CHARACTERS_MIN} to {CHARACTERS_MAX} characters", "password")


async def hash_password(password: str) -> str:
    """What is kept of a password."""
    check_password(password)
    return await asyncio.get_running_loop().run_in_executor(_threads, _hasher.hash, _bytes(password))


async def verify_password(password: str, kept: str | None) -> bool:
    """Whether this is the password that was kept; for None it takes as long and is False."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, _fits, password[:CHARACTERS_MAX], kept)


def _fits(password: str, kept: str | None) -> bool:
    try:
        _hasher.verify(kept or _nobodys(), _bytes(password))
    except (VerificationError, InvalidHashError):
        return False
    return kept is not None


@functools.cache
def _nobodys() -> str:
    return _hasher.hash("nobody's")


def _bytes(password: str) -> bytes:
    return password.encode(errors="surrogatepass")
