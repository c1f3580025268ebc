"""Google Calendar watch channels that never go quiet: secondary addresses on every event of a primary."""

from __future__ import annotations

from holdfast.kit.channels import Watch
from holdfast.kit.inbox import Source
from holdfast.service import Context, Health, Parts, Service, Webhook, WebhookStatuses
from holdfast.services.calendar_sync.checks import address, credentials
from holdfast.services.calendar_sync.jobs import jobs_of
from holdfast.services.calendar_sync.models import DOCUMENTS, CalendarState
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.routes import routes_of
from holdfast.services.calendar_sync.settings import CalendarSyncSettings
from holdfast.services.calendar_sync.sync.loops import InitialReload
from holdfast.services.calendar_sync.sync.notifications import (
    SOURCE,
    NotificationHandler,
    NotificationVerifier,
)
from holdfast.services.calendar_sync.views import pages_of


def build(context: Context) -> Parts:
    """The service's parts; without settings it has no loops and no jobs, and only answers."""
    operations = CalendarSync(context)

    async def health() -> Health:
        return (await operations.look()).health()

    verifier = NotificationVerifier(
        operations.keys, is_ours=operations.channels.has_open, metrics=operations.metrics
    )
    source = Source(name=SOURCE, verifier=verifier, body_bytes_max=65_536)
    in_use = operations.settings.in_use
    handler = NotificationHandler(
        context.store, operations.channels, gap_s=operations.settings.sync_gap_s, metrics=operations.metrics
    )
    first_look = InitialReload(context.store, operations.refresh)
    return Parts(
        routes=routes_of(operations),
        webhooks=[Webhook(path="/webhook", source=source, statuses=WebhookStatuses(stored=200))],
        handlers={SOURCE: handler},
        jobs=jobs_of(operations) if in_use else [],
        loops={"mappings": first_look, "channels": operations.channels, "syncs": operations.syncs}
        if in_use
        else {},
        queues={"syncs": CalendarState, "channels": Watch} if in_use else {},
        pages=pages_of(operations),
        health=health,
        checks=[lambda: credentials(operations), lambda: address(operations)],
        start=operations.start,
        close=operations.close,
        metrics=operations.metrics,
        operations=operations,
    )


service = Service(
    name="calendar_sync",
    summary="Adds people's secondary addresses to their calendar events.",
    documents=DOCUMENTS,
    settings=CalendarSyncSettings,
    build=build,
)
