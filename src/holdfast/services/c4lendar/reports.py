"""What routes, commands and pages show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from holdfast.services.c4lendar.domain.parser import Question, parse
from holdfast.services.c4lendar.domain.references import reference_of
from holdfast.services.c4lendar.domain.replies import when_text
from holdfast.services.c4lendar.events import details_of
from holdfast.services.c4lendar.models import BotEvent, EventMapping, GoogleConnection


class ParseResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a text means; `question` is set instead of a guess. An all-day `end` is exclusive."""

    title: str | None = None
    start: str | None = None
    end: str | None = None
    all_day: bool = False
    location: str | None = None
    recurrence: str | None = None
    question: str | None = None


def parse_response(text: str, *, now: datetime, zone: ZoneInfo) -> ParseResponse:
    """Parse a text and describe the result."""
    parsed = parse(text, now=now, zone=zone)
    if isinstance(parsed, Question):
        return ParseResponse(question=parsed.text)
    return ParseResponse(
        title=parsed.title, start=parsed.start.isoformat(), end=parsed.end.isoformat(),
        all_day=parsed.all_day, location=parsed.location or None, recurrence=parsed.recurrence or None,
    )  # fmt: skip


class AccountStatus(msgspec.Struct, frozen=True):
    """Whether one account has an event's newest version, and why not."""

    email: str
    status: Literal["done", "failed", "pending"]
    error: str = ""


def account_statuses(
    event: BotEvent, mappings: Sequence[EventMapping], *, accounts: Sequence[GoogleConnection]
) -> list[AccountStatus]:
    """The status of an event in each account of its chat."""
    rows = {row.google_sub: row for row in mappings}
    return [_status(event, rows.get(account.google_sub), account.google_email) for account in accounts]


def _status(event: BotEvent, row: EventMapping | None, email: str) -> AccountStatus:
    if row is not None and row.version == event.version:
        return AccountStatus(email, "done")
    return AccountStatus(email, "failed", row.error) if row and row.error else AccountStatus(email, "pending")


def event_row(event: BotEvent, mappings: Sequence[EventMapping], *, uids: Sequence[str]) -> dict[str, Any]:
    """An event with its reference among these, and how many accounts have its newest version."""
    current = [row for row in mappings if row.version == event.version]
    return {
        "uid": event.uid, "reference": reference_of(event.uid, uids), "title": event.title,
        "when": when_text(details_of(event)), "accounts": len(current),
        "failed": len(mappings) - len(current), "createdAt": event.created_at,
    }  # fmt: skip
