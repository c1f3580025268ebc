"""Google Calendar watch channels that never go quiet: secondary addresses on every event of a primary."""

from __future__ import annotations

from functools import partial

from holdfast.kit.channels import Watch
from holdfast.kit.inbox import Source
from holdfast.service import Context, Health, Loop, Parts, Service, Webhook, WebhookStatuses
from holdfast.services.calendar_sync.checks import check_address, check_credentials
from holdfast.services.calendar_sync.jobs import jobs_of
from holdfast.services.calendar_sync.models import DOCUMENTS, CalendarState, Order
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.routes import ROUTES
from holdfast.services.calendar_sync.settings import CalendarSyncSettings
from holdfast.services.calendar_sync.sync.engine import CHANNEL_KEY
from holdfast.services.calendar_sync.sync.loops import InitialReload
from holdfast.services.calendar_sync.sync.notifications import (
    SOURCE,
    NotificationHandler,
    NotificationVerifier,
)
from holdfast.services.calendar_sync.views import pages_of


def build(context: Context) -> Parts:
    """Build the service's parts; without settings it has neither loops nor jobs."""
    operations = CalendarSync(context)
    engine = operations.engine
    in_use = engine.settings.in_use

    async def health() -> Health:
        return (await engine.status()).health()

    verifier = NotificationVerifier(engine.keys.values(), engine.channels, metrics=engine.metrics)
    source = Source(name=SOURCE, verifier=verifier, is_ours=verifier.is_ours, body_bytes_max=65_536)
    loops: dict[str, Loop] = {
        "mappings": InitialReload(context.store, engine.refresh), "orders": operations.orders,
        "channels": engine.channels, "syncs": engine.syncs,
    }  # fmt: skip
    return Parts(
        routes=ROUTES,
        webhooks=[Webhook(path="/webhook", source=source, statuses=WebhookStatuses(stored=200))],
        handlers={SOURCE: NotificationHandler(engine.channels, clock=context.clock,
                                              gap_s=engine.settings.sync_gap_s, metrics=engine.metrics)},
        jobs=jobs_of(engine) if in_use else [],
        loops=loops if in_use else {},
        queues={"orders": Order, "syncs": CalendarState, "channels": Watch} if in_use else {},
        pages=pages_of(operations),
        health=health,
        checks=[partial(check_credentials, engine), partial(check_address, engine)],
        start=engine.start,
        metrics=engine.metrics,
        operations=operations,
    )  # fmt: skip


service = Service(
    name="calendar_sync",
    summary="Adds people's secondary addresses to their calendar events.",
    documents=DOCUMENTS,
    settings=CalendarSyncSettings,
    derived_keys=[CHANNEL_KEY],
    build=build,
)
