"""Ids of watches and channels: readable, short enough for providers, unique."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

CHANNEL_ID_CHARACTERS_MAX: Final = 64
STAMP_CHARACTERS: Final = 13
DIGEST_CHARACTERS: Final = 12
NAME_CHARACTERS_MAX: Final = 30
_WATCH_CHARACTERS_MAX: Final = CHANNEL_ID_CHARACTERS_MAX - STAMP_CHARACTERS - 1
_INVALID: Final = re.compile(r"[^A-Za-z0-9_+=-]")


def watch_ids(name: str, tenant_id: str, watched_id: str) -> tuple[str, str]:
    """The id a watch should have, and the one it gets when another has taken that.

    Different addresses can look alike without their dots (`a.b@c`, `a@b.c`), so the second carries a digest
    of the whole; a long address carries one in any case.

    Example: `watch_ids("calendar-sync", "-", "alice@hoge.jp")[0]` gives `calendar-sync-alice-hoge-jp`
    """
    plain = f"{name}-{_INVALID.sub('-', watched_id)}"
    if len(plain) > _WATCH_CHARACTERS_MAX:
        plain = _with_digest(plain, watched_id)
    return plain, _with_digest(plain, f"{tenant_id}\n{watched_id}")


def _with_digest(plain: str, text: str) -> str:
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()
    head = plain[: _WATCH_CHARACTERS_MAX - DIGEST_CHARACTERS - 1]
    return f"{head}-{digest[:DIGEST_CHARACTERS]}"


def channel_id(watch_id: str, stamp_ms: int) -> str:
    """Example: `calendar-sync-alice-hoge-jp-1767225600000`"""
    return f"{watch_id}-{stamp_ms}"


def watch_id_of(channel: str) -> str:
    """The watch id within a channel id; known before the channel is stored."""
    return channel.rpartition("-")[0]


def format_duration(seconds: float) -> str:
    """A duration for people: `6d 12h 34m`; `0m` when it is over."""
    minutes = max(0, int(seconds // 60))
    days, hours, rest = minutes // 1_440, minutes // 60 % 24, minutes % 60
    return " ".join([f"{days}d"] * (days > 0) + [f"{hours}h"] * (minutes >= 60) + [f"{rest}m"])
