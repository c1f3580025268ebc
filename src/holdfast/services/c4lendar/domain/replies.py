"""The bot's messages, as Telegram's HTML; everything that people wrote is escaped here."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import date, datetime, timedelta

import msgspec

from holdfast.services.c4lendar.domain.parser import EventDetails

TEXT_CHARACTERS_MAX = 4_000
HELP = """<b>One chat, many calendars</b>
#cal team standup tomorrow 9am – adds an event to every connected calendar (also as a reply)
#alt EVT-… friday 3pm – changes an event
#del EVT-… or words of its title – deletes an event
#view today, tomorrow or week – lists events
#undo – takes the last change back, for 10 minutes
#aut – connects a Google account
#dis alice@example.com – disconnects an account from this chat
#tz Europe/Berlin – sets the time zone of this chat"""
NO_ACCOUNT = "No Google account is connected to this chat. Send #aut to connect one."


class AccountResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event in one account; `again` when it will be tried again."""

    email: str
    google_sub: str
    ok: bool
    error: str = ""
    again: bool = False


def escape(text: str) -> str:
    """Escape what people wrote."""
    return html.escape(text, quote=False)


def event_text(
    heading: str, details: EventDetails, *, reference: str, results: Sequence[AccountResult]
) -> str:
    """The message about an event and the accounts it is in."""
    lines = [f"<b>{escape(heading)}</b>", escape(details.title), when_text(details)]
    if details.recurrence:
        lines.append(f"Repeats: {escape(details.recurrence)}")
    if details.location:
        lines.append(f"At {escape(details.location)}")
    lines += [f"<code>{reference}</code>", *_result_lines(results)]
    return cut("\n".join(lines))


def _result_lines(results: Sequence[AccountResult]) -> list[str]:
    done, total = sum(one.ok for one in results), len(results)
    lines = [f"{done}/{total} accounts"]
    for one in results:
        if not one.ok:
            again = " – will be tried again" if one.again else ""
            lines.append(f"{escape(one.email)}: {escape(one.error)}{again}")
    return lines


def when_text(details: EventDetails) -> str:
    """When an event is, for people."""
    start, end = details.start, details.end
    if isinstance(start, datetime) and isinstance(end, datetime):
        last = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%a %-d %b %Y %H:%M}"
        return f"{start:%a %-d %b %Y %H:%M} – {last}"
    last_day = end - timedelta(days=1)
    first = f"{start:%a %-d %b %Y}"
    return f"{first}, all day" if last_day <= start else f"{first} – {last_day:%a %-d %b %Y}, all day"


def changes_text(before: EventDetails, after: EventDetails) -> str:
    """What an `#alt` changed."""
    parts = []
    if before.title != after.title:
        parts.append(f"title: {before.title} → {after.title}")
    if (before.start, before.end) != (after.start, after.end):
        parts.append(f"time: {when_text(before)} → {when_text(after)}")
    if before.location != after.location:
        parts.append(f"place: {before.location or 'none'} → {after.location or 'none'}")
    if before.recurrence != after.recurrence:
        parts.append(f"repeats: {before.recurrence or 'no'} → {after.recurrence or 'no'}")
    return "; ".join(parts)


def cut(text: str) -> str:
    """Shorten a text to what Telegram takes, at a line's end so that no tag stays open."""
    if len(text) <= TEXT_CHARACTERS_MAX:
        return text
    return text[:TEXT_CHARACTERS_MAX].rpartition("\n")[0] + "\n…"


def day_of(when: datetime | date) -> date:
    """The day of a start or end."""
    return when.date() if isinstance(when, datetime) else when
