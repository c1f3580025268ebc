"""What to do with a connection, and its state after a provider's answer. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec.structs import replace

from holdfast.kit.connections.models import ConnectionFields
from holdfast.kit.connections.port import Grant
from holdfast.outside_text import clean_text

# A token is refreshed this long before it expires, and used this close to its end while refreshing fails.
EARLY_S: Final = 300.0
LAST_S: Final = 10.0
RETRY_S_MIN: Final = 5.0
RETRY_S_MAX: Final = 300.0
REASON_CHARS_MAX: Final = 500

Seal = Callable[[str, str], str]
Act = Literal["use", "refresh", "wait", "refuse"]


def is_valid_for(connection: ConnectionFields, now: datetime, seconds: float) -> bool:
    """Whether the access token is valid for so long."""
    end = connection.expires_at
    return bool(connection.access_token) and (end is None or now + timedelta(seconds=seconds) < end)


def decide(connection: ConnectionFields, now: datetime, *, rejected: bool) -> Act:
    """Use the token, refresh it, wait to call the provider, or have the owner connect again."""
    if connection.status != "connected":
        return "refuse"
    if is_valid_for(connection, now, EARLY_S) and not rejected:
        return "use"
    if connection.retry_at is not None and now < connection.retry_at:
        return "wait"
    return "refresh"


def merge_grant(granted: ConnectionFields, previous: ConnectionFields | None) -> ConnectionFields:
    """A new grant in place of the previous one, whose refresh token stays where none came with it."""
    if previous is None:
        return granted
    keep_refresh = previous.status == "connected" and not granted.refresh_token
    refresh = {"refresh_token": previous.refresh_token} if keep_refresh else {}
    return replace(granted, generation=previous.generation + 1, name=granted.name or previous.name, **refresh)


def apply_refresh(
    connection: ConnectionFields, grant: Grant, *, used: str, now: datetime, seal: Seal
) -> ConnectionFields:
    """The connection with the grant that the refresh token `used` brought.

    A replaced refresh token is stored as the former one until its successor has worked, which this one now
    has.
    """
    replaced = bool(grant.refresh_token) and grant.refresh_token != used
    return replace(
        connection, access_token=seal("access_token", grant.access_token), expires_at=expiry_of(grant, now),
        refresh_token=seal("refresh_token", grant.refresh_token or used),
        former_refresh_token=seal("former_refresh_token", used) if replaced else "",
        scopes=list(grant.scopes) or connection.scopes, refreshed_at=now, status="connected", reason="",
        retry_at=None, failures=0, generation=connection.generation + 1,
    )  # fmt: skip


def mark_refused(connection: ConnectionFields, reason: str) -> ConnectionFields:
    """The grant does not work any more; its owner must connect again."""
    return replace(
        connection,
        status="needs_reauth",
        reason=clean_text(reason, characters_max=REASON_CHARS_MAX),
        retry_at=None,
    )


def delay_retry(
    connection: ConnectionFields, now: datetime, *, after_s: float, reason: str
) -> ConnectionFields:
    """The provider was unavailable: back off, up to five minutes."""
    wait_s = max(after_s, min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(connection.failures, 10)))
    return replace(
        connection, retry_at=now + timedelta(seconds=wait_s), failures=connection.failures + 1,
        reason=clean_text(reason, characters_max=REASON_CHARS_MAX),
    )  # fmt: skip


def expiry_of(grant: Grant, now: datetime) -> datetime | None:
    return None if grant.expires_in_s is None else now + timedelta(seconds=grant.expires_in_s)


def without_tokens(connection: ConnectionFields) -> ConnectionFields:
    return replace(connection, access_token="", refresh_token="", former_refresh_token="", expires_at=None)
