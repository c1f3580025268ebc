"""The best stories of Hacker News, without those that a reader has seen."""

from __future__ import annotations

from holdfast.service import Context, Parts, Service
from holdfast.services.hackernews.jobs import jobs_of
from holdfast.services.hackernews.models import DOCUMENTS
from holdfast.services.hackernews.operations import HackerNews
from holdfast.services.hackernews.reader_pages import public_forms, public_pages
from holdfast.services.hackernews.routes import ROUTES
from holdfast.services.hackernews.settings import HackerNewsSettings
from holdfast.services.hackernews.views import health_of, pages_of


def build(context: Context) -> Parts:
    """Build the service's parts; unless fetching is enabled it has no job."""
    operations = HackerNews(context)
    return Parts(
        routes=ROUTES,
        public_pages=public_pages(operations),
        public_forms=public_forms(operations),
        jobs=jobs_of(operations) if operations.settings.enabled else [],
        caches=[operations.cache.cache],
        pages=pages_of(operations),
        health=health_of(operations),
        metrics=operations.metrics,
        operations=operations,
    )


service = Service(
    name="hackernews",
    summary="Shows the best stories of Hacker News, without those that a reader hid.",
    documents=DOCUMENTS,
    settings=HackerNewsSettings,
    build=build,
)
