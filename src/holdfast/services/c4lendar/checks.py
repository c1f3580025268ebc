"""Checks of `holdfast doctor`: the settings, and whether Telegram sends updates here."""

from __future__ import annotations

from typing import Final
from zoneinfo import available_timezones

from holdfast.errors import HoldfastError
from holdfast.service import CheckResult
from holdfast.services.c4lendar.bot import Bot
from holdfast.services.c4lendar.settings import C4lendarSettings

SETTINGS: Final = "c4lendar settings"
UPDATES: Final = "c4lendar updates"
SECRET_CHARACTERS_MIN: Final = 16


async def check_settings(settings: C4lendarSettings) -> CheckResult:
    given = [bool(settings.bot_token), bool(settings.owner_id), bool(settings.google_client)]
    if not any(given):
        return CheckResult(SETTINGS, True, "not in use: no bot_token under [service.c4lendar]")
    if not all(given):
        return CheckResult(
            SETTINGS,
            False,
            "half set up",
            "set bot_token, owner_id and google_client under [service.c4lendar]",
        )
    if settings.time_zone not in available_timezones():
        return CheckResult(
            SETTINGS, False, f"no such time zone: {settings.time_zone}", "use Europe/Berlin or alike"
        )
    if not settings.polling and len(settings.webhook_secret) < SECRET_CHARACTERS_MIN:
        return CheckResult(
            SETTINGS, False, "webhook_secret is missing or short",
            f"set at least {SECRET_CHARACTERS_MIN} random characters, or polling = true",
        )  # fmt: skip
    return CheckResult(SETTINGS, True, "the settings are whole")


async def check_bot(bot: Bot) -> CheckResult:
    """Check that the token is good, and that updates come here."""
    try:
        name = (await bot.telegram.get_me()).username
        webhook = await bot.telegram.get_webhook_info()
    except HoldfastError as fault:
        return CheckResult(UPDATES, False, f"Telegram: {fault.message}", "check bot_token and the network")
    if bot.settings.polling:
        return CheckResult(UPDATES, True, f"@{name} is polled for updates")
    if webhook.url != bot.webhook_url:
        return CheckResult(
            UPDATES, False, f"Telegram sends @{name}'s updates elsewhere or nowhere",
            "set public_url and restart `holdfast serve`, which tells Telegram the address",
        )  # fmt: skip
    if webhook.last_error_message:
        return CheckResult(
            UPDATES, False, f"Telegram could not deliver: {webhook.last_error_message}", "check public_url"
        )
    return CheckResult(UPDATES, True, f"@{name}'s updates come here")
