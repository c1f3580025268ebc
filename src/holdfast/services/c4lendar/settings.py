"""Settings: the table `[service.c4lendar]` of holdfast.toml."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.providers.google_calendar import CALENDAR_URL
from holdfast.providers.telegram import TELEGRAM_URL

EVENTS_SCOPE: Final = "https://www.googleapis.com/auth/calendar.events"
Seconds = Annotated[float, Meta(gt=0)]


class C4lendarSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `bot_token`, `owner_id` and `google_client` the service is not in use.

    `polling` asks Telegram for updates instead of a webhook, for those without a public address.
    Otherwise the server tells Telegram its webhook's address when it starts, unless `register_webhook` is
    false. With `model_url` and `model_name` a language model reads events' texts, within `model_s`.

    Example: `C4lendarSettings(bot_token="42:abc", owner_id=7, google_client="client.json")`
    """

    bot_token: str = ""
    owner_id: int = 0
    webhook_secret: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{0,256}$")] = ""
    google_client: str = ""
    time_zone: str = "UTC"
    polling: bool = False
    register_webhook: bool = True
    model_url: Annotated[str, Meta(pattern=r"^(https?://[^\s/]\S*)?$")] = ""
    model_name: str = ""
    model_key: Annotated[str, Meta(pattern=r"^[!-~]*$")] = ""
    model_s: Seconds = 5.0
    messages_per_s: Annotated[int, Meta(ge=1)] = 30
    messages_per_chat_s: Annotated[int, Meta(ge=1)] = 1
    telegram_url: str = TELEGRAM_URL
    calendar_url: str = CALENDAR_URL

    @property
    def in_use(self) -> bool:
        return bool(self.bot_token and self.owner_id and self.google_client)
