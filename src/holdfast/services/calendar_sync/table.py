"""Channel status as a plain-text table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from holdfast.services.calendar_sync.reports import ChannelResponse, StatusResponse

_HEAD: Final = ("CHANNEL", "CALENDAR", "STATUS", "EXPIRES", "IN", "")


def as_table(status: StatusResponse) -> str:
    """The rows in columns, then the summary in one line.

    Example: `calendar-sync-alice-hoge-jp-1767225600000  alice@hoge.jp  active  2026-01-08 00:00  6d 12h 34m`
    """
    rows = [_HEAD, *(_cells(channel) for channel in status.channels)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    counts = ", ".join(f"{count} {name}" for name, count in status.summary.items())
    more = [f"more: cursor={status.cursor}"] if status.cursor else []
    return "\n".join([*(line.rstrip() for line in lines), "", f"{status.health.status}: {counts}", *more, ""])


def _cells(channel: ChannelResponse) -> tuple[str, ...]:
    expires = datetime.fromtimestamp(channel.expiration / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    left = channel.expires_in if channel.status == "active" else "-"
    return (
        channel.channel_id, channel.calendar_id, channel.status, expires, left,
        "WARNING" if channel.warning else "",
    )  # fmt: skip
