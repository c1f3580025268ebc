"""GitHub's webhook: each event is verified and stored by the inbox, then becomes a signal, a change of an
installation, or is ignored with the reason; all in the commit that settles its item."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from holdfast.errors import RetryLaterError
from holdfast.kit.inbox import InboxItem, Source
from holdfast.providers.github import GithubApp, GithubVerifier
from holdfast.service import Context
from holdfast.services.gwi.domain.github_events import (
    INSTALLATION,
    EventRepository,
    GithubEvent,
    context_fields,
    ignored_reason,
    occurred_at,
    parse_event,
    payload_fields,
    source_of,
)
from holdfast.services.gwi.event_requests import EventRequests, request_of
from holdfast.services.gwi.installations import InstallationEvents
from holdfast.services.gwi.models.tenants import Installation, Repo, Tenant, repo_id_of
from holdfast.services.gwi.models.work import SignalContext, SourceRepo
from holdfast.services.gwi.operations.signals import record_signal
from holdfast.services.gwi.settings import GwiSettings
from holdfast.store import Transaction, put

SOURCE: Final = "github"
PATH: Final = "/webhook"
# An installation's own event may come later than the first events from it.
UNKNOWN_S_MAX: Final = 600.0
UNKNOWN_RETRY_S: Final = 5.0


class GithubWebhook:
    """Receives and handles the App's events.

    Example: `Parts(webhooks=[Webhook(path=PATH, source=webhook.source)], handlers={SOURCE: webhook.handle})`
    """

    def __init__(self, context: Context, app: GithubApp | None, *, requests: EventRequests) -> None:
        settings: GwiSettings = context.settings
        self._clock, self._requests = context.clock, requests
        self.installations = InstallationEvents(context.store, context.audit)
        secrets = [one for one in (settings.webhook_secret, settings.webhook_secret_previous) if one]
        self.source = Source(
            name=SOURCE, verifier=GithubVerifier(*secrets), tenant_of=self.installations.tenant_of,
            body_bytes_max=settings.webhook_bytes_max, delivery_log=None if app is None else app.delivery_log,
        )  # fmt: skip

    async def handle(self, item: InboxItem, tx: Transaction) -> str | None:
        """Handle an event; return why it is ignored, if it is."""
        name = item.headers.get("x-github-event", "")
        try:
            event = parse_event(name, item.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "the body is no event as JSON; set the webhook's content type to application/json"
        if name in INSTALLATION:
            return await self.installations.apply(tx, event)
        if (reason := ignored_reason(event)) is not None:
            return reason
        tenant = await self._tenant(tx, event, item)
        if isinstance(tenant, str):
            return tenant
        if name == "repository":
            return await self.installations.apply_to_repo(tx, tenant.id, event)
        repo = await self._repo(tx, tenant.id, event)
        if isinstance(repo, str):
            return repo
        await self._record(tx, repo, event, item)
        request = request_of(event, repo, tenant, delivery=item.message_id)
        if request is not None:
            tx.write(*self._requests.writes_start(tenant.id, request))
        return None

    async def _tenant(self, tx: Transaction, event: GithubEvent, item: InboxItem) -> Tenant | str:
        """The tenant of an event, or why it has none."""
        if event.installation is None:
            return f"{event.name}: it comes from no installation of the App"
        stored = await tx.get(Installation, str(event.installation.id))
        if stored is None:
            if self._clock.now() < item.received_at + timedelta(seconds=UNKNOWN_S_MAX):
                raise RetryLaterError("the installation is not known yet", after_s=UNKNOWN_RETRY_S)
            return f"installation {event.installation.id} is not known; install the App again"
        if stored.doc.deleted_at is not None:
            return f"installation {event.installation.id} was deleted"
        tenant = await tx.get(Tenant, stored.doc.tenant_id)
        if tenant is None or tenant.doc.status == "deactivated":
            return f"the tenant {stored.doc.tenant_id} is not in use"
        return tenant.doc

    async def _repo(self, tx: Transaction, tenant_id: str, event: GithubEvent) -> Repo | str:
        """The repository of an event, or why its events are not taken."""
        assert event.repository is not None
        stored = await tx.get(Repo, tenant_id, repo_id_of(event.repository.id))
        if stored is None or not stored.doc.enabled:
            return f"{event.repository.full_name} is not connected; connect it to have its events"
        patterns, base = stored.doc.settings.branch_patterns, event.topic.base
        if patterns and base is not None and not any(fnmatchcase(base.ref, one) for one in patterns):
            return f"the branch {base.ref} of {event.repository.full_name} is not watched"
        return self._renewed(tx, stored.doc, event.repository)

    def _renewed(self, tx: Transaction, repo: Repo, about: EventRepository) -> Repo:
        """The repository with its name and default branch by the event, which an installation's lacks."""
        named = {
            "github_full_name": about.full_name or repo.github_full_name,
            "default_branch": about.default_branch or repo.default_branch,
        }
        if all(getattr(repo, field) == value for field, value in named.items()):
            return repo
        renewed = msgspec.structs.replace(repo, **named, updated_at=self._clock.now())
        tx.write(put(renewed))
        return renewed

    async def _record(self, tx: Transaction, repo: Repo, event: GithubEvent, item: InboxItem) -> None:
        owner, _, name = repo.github_full_name.partition("/")
        named = SourceRepo(owner=owner, name=name, full_name=repo.github_full_name, id=repo.github_repo_id)
        fields: dict[str, Any] = context_fields(event)
        await record_signal(
            tx, tenant_id=repo.tenant_id, source=source_of(event), external_id=item.message_id,
            occurred_at=occurred_at(event, item.received_at), now=self._clock.now(),
            context=SignalContext(repo=named, **fields), payload=payload_fields(event),
        )  # fmt: skip
