"""Installations compared with GitHub once a day: what an event that never came would have told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import structlog

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.kit.schedules import Job, Slot
from holdfast.providers.github import GithubApp
from holdfast.services.gwi.domain.github_events import (
    EventAccount,
    EventInstallation,
    EventRepository,
    GithubEvent,
)
from holdfast.services.gwi.installations import InstallationEvents
from holdfast.services.gwi.models.tenants import Installation, Repo, repo_id_of
from holdfast.store import Query, Store

JOB: Final = "gwi-installations"
CRON: Final = "23 3 * * *"
LIMIT_S: Final = 1_800.0
log = structlog.get_logger("holdfast.gwi")


class InstallationSync:
    """Applies what GitHub says of each installation as if an event had told it.

    Example: `Parts(jobs=[InstallationSync(store, app, installations).job])`
    """

    def __init__(self, store: Store, app: GithubApp, events: InstallationEvents) -> None:
        self._store, self._app, self._events = store.privileged(), app, events

    @property
    def job(self) -> Job:
        async def act(slot: Slot) -> Any:
            return await self.sync()

        return Job(name=JOB, cron=CRON, act=act, time_limit_s=LIMIT_S)

    async def sync(self) -> dict[str, int]:
        """Compare every installation; one that can't be read is left for the next day."""
        counts = {"installations": 0, "changes": 0, "failed": 0}
        async for stored in self._store.scan(Query(Installation)):
            if stored.doc.deleted_at is not None:
                continue
            counts["installations"] += 1
            try:
                async for event in self._missed(stored.doc):
                    await self._apply(event)
                    counts["changes"] += 1
            except HoldfastError as fault:
                counts["failed"] += 1
                log.warning("installation not compared", installation=stored.doc.id, error=fault.message)
        return counts

    async def _apply(self, event: GithubEvent) -> None:
        await self._store.transact(lambda tx: self._events.apply(tx, event))

    async def _missed(self, known: Installation) -> AsyncIterator[GithubEvent]:
        """The events that would have told of the differences."""
        account = EventAccount(id=known.github_org_id, login=known.github_org_login)
        about = EventInstallation(id=known.installation_id, account=account)
        try:
            current = await self._app.get_installation(known.installation_id)
        except NotFoundError:
            yield GithubEvent(name="installation", action="deleted", installation=about)
            return
        suspended = current.suspended_at is not None
        if suspended != (known.suspended_at is not None):
            action = "suspend" if suspended else "unsuspend"
            yield GithubEvent(name="installation", action=action, installation=about)
        if not suspended:
            async for event in self._missed_repositories(known, about):
                yield event

    async def _missed_repositories(
        self, known: Installation, about: EventInstallation
    ) -> AsyncIterator[GithubEvent]:
        # One that is known but disabled stays so: the plan or an admin has decided that.
        listed = {
            repo_id_of(one.id): EventRepository(id=one.id, name=one.name, full_name=one.full_name)
            async for one in self._app.installation(known.installation_id).list_repositories()
        }
        query = Query(Repo).under(known.tenant_id).order_by("github_full_name")
        stored = {one.doc.id: one.doc async for one in self._store.tenant(known.tenant_id).scan(query)}
        added = [one for id, one in listed.items() if id not in stored]
        removed = [
            EventRepository(id=one.github_repo_id, full_name=one.github_full_name)
            for one in stored.values()
            if one.enabled and one.id not in listed
        ]
        name = "installation_repositories"
        if added:
            yield GithubEvent(name=name, action="added", installation=about, repositories_added=added)
        if removed:
            yield GithubEvent(name=name, action="removed", installation=about, repositories_removed=removed)
