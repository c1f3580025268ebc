"""What is watched at providers, and how long each channel still has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from markupsafe import Markup

from holdfast.console.formatting import span
from holdfast.console.plots import meter
from holdfast.kit.channels import Watch
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.store import Query

ROWS: Final = 50
_WEEK_S: Final = 7 * 86_400.0
_SOON_S: Final = 86_400.0


def left(watch: Watch, now: datetime) -> Markup:
    """How long the channel lasts: against a week, the most that providers give."""
    if watch.current is None:
        return meter(0, tone="bad", said="no channel is open")
    left_s = (watch.current.ends_at - now).total_seconds()
    tone = "bad" if left_s <= 0 else "warn" if left_s < _SOON_S else "good"
    return meter(left_s / _WEEK_S, tone=tone, said=f"ends in {span(left_s)}" if left_s > 0 else "has ended")


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        query = Query(Watch).order_by("renew_at").limit(ROWS).after(ask.cursor)
        page = await runtime.store.tenant(ask.tenant_id).query(query)
        now = runtime.clock.now()
        return {"rows": [(one, left(one, now)) for one in page.docs], "after": page.cursor}

    return [
        Page(
            path="/channels", title="Channels", template="channels.html", data=listed, needs="admin",
            live=("channels",),
        )
    ]  # fmt: skip
