"""What the service adds to the process."""

from __future__ import annotations

from functools import partial
from typing import Final

from holdfast.kit.inbox import Source
from holdfast.providers.telegram import TelegramVerifier
from holdfast.service import Context, Parts, Webhook, WebhookStatuses
from holdfast.services.c4lendar.bot import PROVIDER, Bot
from holdfast.services.c4lendar.checks import check_bot, check_settings
from holdfast.services.c4lendar.polling import UpdatePolling
from holdfast.services.c4lendar.routes import ROUTES
from holdfast.services.c4lendar.views import pages_of

SOURCE: Final = "telegram"
STATUSES: Final = WebhookStatuses(stored=200)


def build(context: Context) -> Parts:
    """Build the service's parts; without settings it has routes and pages only."""
    bot = Bot(context)
    settings = bot.settings
    pages = pages_of(bot.operations, in_use=settings.in_use)
    checks = [partial(check_settings, settings)]
    if not settings.in_use:
        return Parts(routes=ROUTES, pages=pages, checks=checks, operations=bot.operations)
    # Without a secret nothing is accepted from the webhook that does not know the bot's own token.
    source = Source(
        name=SOURCE, verifier=TelegramVerifier(settings.webhook_secret or settings.bot_token),
        tenant_of=bot.tenant_of, ordered=True,
    )  # fmt: skip
    return Parts(
        routes=ROUTES,
        webhooks=[Webhook(path="/telegram-webhook", source=source, statuses=STATUSES)],
        handlers={SOURCE: bot.handle},
        workflows=[bot.workflow.workflow],
        loops={"polling": UpdatePolling(bot, context.inbox, source)} if settings.polling else {},
        oauth_providers={PROVIDER: bot.grants},
        consent_purposes=[bot.purpose],
        start=bot.start,
        pages=pages,
        checks=[*checks, partial(check_bot, bot)],
        operations=bot.operations,
    )
