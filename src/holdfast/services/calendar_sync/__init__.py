"""Google Calendar watch channels that never go quiet: secondary addresses on every event of a primary."""

from __future__ import annotations

from holdfast.kit.channels import Watch
from holdfast.kit.inbox import Source
from holdfast.service import Context, Health, Parts, Service, Webhook, WebhookStatuses
from holdfast.services.calendar_sync.checks import address, credentials
from holdfast.services.calendar_sync.jobs import jobs_of
from holdfast.services.calendar_sync.loops import InitialReload
from holdfast.services.calendar_sync.models import DOCUMENTS, CalendarState
from holdfast.services.calendar_sync.notifications import SOURCE, NotificationHandler, NotificationVerifier
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.routes import routes_of
from holdfast.services.calendar_sync.settings import CalendarSyncSettings
from holdfast.services.calendar_sync.views import pages_of


def build(context: Context) -> Parts:
    """The service's parts; without settings it has no loops and no jobs, and only answers."""
    keeper = CalendarSync(context)

    async def health() -> Health:
        return (await keeper.look()).health()

    verifier = NotificationVerifier(keeper.keys, is_ours=keeper.channels.knows, figures=keeper.figures)
    source = Source(name=SOURCE, verifier=verifier, body_bytes_max=65_536)
    in_use = keeper.settings.in_use
    handler = NotificationHandler(
        context.store, keeper.channels, gap_s=keeper.settings.sync_gap_s, figures=keeper.figures
    )
    first_look = InitialReload(context.store, keeper.refresh)
    return Parts(
        routes=routes_of(keeper),
        hooks=[Webhook(path="/webhook", source=source, answers=WebhookStatuses(kept=200))],
        handlers={SOURCE: handler},
        jobs=jobs_of(keeper) if in_use else [],
        loops={"mappings": first_look, "channels": keeper.channels, "syncs": keeper.syncs} if in_use else {},
        queues={"syncs": CalendarState, "channels": Watch} if in_use else {},
        pages=pages_of(keeper),
        health=health,
        checks=[lambda: credentials(keeper), lambda: address(keeper)],
        start=keeper.start,
        close=keeper.close,
        figures=keeper.figures,
        inside=keeper,
    )


service = Service(
    name="calendar_sync",
    summary="Adds people's secondary addresses to their calendar events.",
    documents=DOCUMENTS,
    settings=CalendarSyncSettings,
    build=build,
)
