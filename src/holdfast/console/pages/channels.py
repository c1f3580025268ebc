"""Watch channels, and how long each still has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from holdfast.console.plots import meter
from holdfast.operations.channels import ChannelRow, list_channels
from holdfast.rendering.formatting import span
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_WEEK_S: Final = 7 * 86_400.0
_SOON_S: Final = 86_400.0


def time_left(channel: ChannelRow, now: datetime) -> Markup:
    """The time until the channel ends, against a week: the most that providers give."""
    if channel.ends_at is None:
        return meter(0, tone="bad", said="no channel is open")
    left_s = (channel.ends_at - now).total_seconds()
    tone = "bad" if left_s <= 0 else "warn" if left_s < _SOON_S else "good"
    return meter(left_s / _WEEK_S, tone=tone, said=f"ends in {span(left_s)}" if left_s > 0 else "has ended")


def pages(runtime: Runtime) -> list[Page]:
    async def channels(ask: PageRequest) -> Mapping[str, Any]:
        page = await list_channels(runtime, ask.tenant_id, limit=ROWS, cursor=ask.cursor)
        now = runtime.clock.now()
        return {"rows": [(one, time_left(one, now)) for one in page.items], "after": page.cursor}

    return [
        Page(
            path="/channels", title="Channels", template="channels.html", data=channels, needs="admin",
            live=("channels",), all_tenants=True,
        )
    ]  # fmt: skip
