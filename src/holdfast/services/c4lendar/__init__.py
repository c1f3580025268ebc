"""A Telegram bot: one chat, many Google calendars."""

from __future__ import annotations

from holdfast.service import Service
from holdfast.services.c4lendar.bot import ACTOR_PREFIX
from holdfast.services.c4lendar.models import DOCUMENTS
from holdfast.services.c4lendar.parts import build
from holdfast.services.c4lendar.settings import C4lendarSettings

service = Service(
    name="c4lendar",
    summary="One Telegram chat, many Google calendars.",
    documents=DOCUMENTS,
    settings=C4lendarSettings,
    actor_prefixes=[ACTOR_PREFIX],
    build=build,
)
