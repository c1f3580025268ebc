"""What the service adds to the process."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.kit.schedules import Job
from holdfast.providers.github import GithubApp
from holdfast.service import AuditPart, Context, MeterPart, Parts, Webhook
from holdfast.services.gwi.checks import check_app, check_settings
from holdfast.services.gwi.event_requests import EventRequests
from holdfast.services.gwi.installation_sync import InstallationSync
from holdfast.services.gwi.installations import InstallationEvents
from holdfast.services.gwi.jobs import jobs_of
from holdfast.services.gwi.models.automation import InstanceSchedule
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.work import SignalQueue
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.automation import InstanceStarts
from holdfast.services.gwi.routes import ROUTES
from holdfast.services.gwi.run_execution import RunExecution, app_of
from holdfast.services.gwi.schedule_worker import ScheduleWorker
from holdfast.services.gwi.settings import GwiSettings
from holdfast.services.gwi.signal_worker import SignalWorker
from holdfast.services.gwi.views import pages_of
from holdfast.services.gwi.webhook import PATH, SOURCE, GithubWebhook


def build(context: Context) -> Parts:
    app = app_of(context)
    execution = RunExecution(context, app)
    gwi = Gwi(context, execution)
    instance_starts = InstanceStarts(context.store, execution.starts)
    return Parts(
        routes=ROUTES,
        audits=[AuditPart(name="gwi", models=AUDIT)],
        meters=[MeterPart(name="gwi", models=METER)],
        runs=[execution.part],
        jobs=[*jobs_of(gwi, context.audit), *_app_jobs(context, app)],
        loops={
            "signals": SignalWorker(context.store, gwi.signals, context.audit),
            "schedules": ScheduleWorker(context.store, instance_starts, context.audit),
        },
        queues={"signals": SignalQueue, "schedules": InstanceSchedule},
        pages=pages_of(gwi),
        checks=_checks(context, app),
        operations=gwi,
        **_webhook(context, gwi, execution, app),
    )


def _checks(context: Context, app: GithubApp | None) -> list[Any]:
    of_app = [] if app is None else [partial(check_app, app, context.clock)]
    return [partial(check_settings, context.settings), *of_app]


def _app_jobs(context: Context, app: GithubApp | None) -> list[Job]:
    if app is None:
        return []
    return [InstallationSync(context.store, app, InstallationEvents(context.store, context.audit)).job]


def _webhook(context: Context, gwi: Gwi, execution: RunExecution, app: GithubApp | None) -> dict[str, Any]:
    """The parts of GitHub's webhook; none without its secret."""
    settings: GwiSettings = context.settings
    if not settings.webhook_secret:
        return {}
    requests = EventRequests(context, gwi, hosts=execution.hosts)
    webhook = GithubWebhook(context, app, requests=requests)
    return {
        "webhooks": [Webhook(path=PATH, source=webhook.source)],
        "handlers": {SOURCE: webhook.handle},
        "workflows": [requests.workflow],
    }
