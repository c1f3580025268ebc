"""Checks of `holdfast doctor`: the settings, and whether GitHub knows the App and delivers its events."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.plural import plural
from holdfast.providers.github import GithubApp
from holdfast.service import CheckResult
from holdfast.services.gwi.settings import GwiSettings

SETTINGS: Final = "gwi settings"
EVENTS: Final = "gwi events"
SECRET_CHARACTERS_MIN: Final = 16
LOOK_BACK: Final = timedelta(days=1)


async def check_settings(settings: GwiSettings) -> CheckResult:
    """Check that the settings are whole."""
    given = [bool(settings.app_id), bool(settings.app_key), bool(settings.webhook_secret)]
    if not any(given):
        return CheckResult(SETTINGS, True, "not in use: no app_id under [service.gwi]")
    if not all(given):
        return CheckResult(
            SETTINGS, False, "half set up", "set app_id, app_key and webhook_secret under [service.gwi]"
        )
    if len(settings.webhook_secret) < SECRET_CHARACTERS_MIN:
        return CheckResult(
            SETTINGS, False, "webhook_secret is short",
            f"set at least {SECRET_CHARACTERS_MIN} random characters, here and at GitHub",
        )  # fmt: skip
    return CheckResult(SETTINGS, True, "the settings are whole")


async def check_app(app: GithubApp, clock: Clock) -> CheckResult:
    """Check that GitHub knows the App, and that it could deliver its events of the last day."""
    try:
        slug = (await app.get_app()).slug
        missed = {one.message_id async for one in app.delivery_log.missed(clock.now() - LOOK_BACK)}
    except HoldfastError as fault:
        return CheckResult(EVENTS, False, f"GitHub: {fault.message}", "check app_id, app_key and the network")
    if missed:
        return CheckResult(
            EVENTS, False,
            f"GitHub failed to deliver {plural(len(missed), 'event')} of {slug} since yesterday",
            "check the webhook's URL and secret at GitHub; lost events are asked for again",
        )  # fmt: skip
    return CheckResult(EVENTS, True, f"GitHub delivers the events of {slug}")
