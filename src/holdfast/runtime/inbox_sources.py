"""What services announce for the inbox: one handler for each source, and jobs that reconcile sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from holdfast.errors import DeclarationError
from holdfast.kit.inbox import Handler, Inbox, Source
from holdfast.kit.schedules import Job, Slot
from holdfast.service import Parts

RECONCILE_CRON: Final = "*/10 * * * *"


def handlers_by_source(parts: Mapping[str, Parts]) -> dict[str, Handler]:
    """The handlers of all services; DeclarationError where two are for the same source."""
    owners: dict[str, str] = {}
    for service, one in parts.items():
        for source in one.handlers:
            if owners.setdefault(source, service) != service:
                raise DeclarationError(
                    f"services {owners[source]!r} and {service!r} both handle source {source!r}; rename one"
                )
    return {source: handler for one in parts.values() for source, handler in one.handlers.items()}


def reconcile_jobs(inbox: Inbox, sources: Iterable[Source]) -> list[Job]:
    """A job for each source whose provider lists what it could not deliver."""

    async def act(source: Source, slot: Slot) -> None:
        await inbox.reconcile(source)

    named = {source.name: source for source in sources if source.delivery_log is not None}
    return [
        Job(name=f"reconcile-{name}", cron=RECONCILE_CRON, act=partial(act, source), retries=0)
        for name, source in named.items()
    ]
