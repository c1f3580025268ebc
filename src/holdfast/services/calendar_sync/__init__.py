"""Google Calendar watch channels that never go quiet: secondary addresses on every event of a primary."""

from __future__ import annotations

from holdfast.service import Context, Parts, Service
from holdfast.services.calendar_sync.models import DOCUMENTS


def build(context: Context) -> Parts:
    return Parts()


service = Service(
    name="calendar_sync",
    summary="Adds people's secondary addresses to their calendar events.",
    documents=DOCUMENTS,
    build=build,
)
