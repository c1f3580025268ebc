"""The runtime of one process: open, work, drain, close."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Final, TypeVar

import structlog

from holdfast import __version__
from holdfast.app import open_store
from holdfast.clock import Clock
from holdfast.config import Config
from holdfast.kit import ALL_TENANTS
from holdfast.kit.access import VisitorSessions
from holdfast.kit.access.roles import roles_of
from holdfast.kit.activity import ActivityRecorder
from holdfast.kit.audit import AUDIT_KEY, AUDIT_MODELS, Audit, AuditModels, CheckpointFile, CheckpointRecorder
from holdfast.kit.audit.checkpoints import FILE as CHECKPOINTS_FILE
from holdfast.kit.audit.checkpoints import publish_to
from holdfast.kit.channels import ChannelFields
from holdfast.kit.connections import Connections, ConsentPurpose, OAuthProvider
from holdfast.kit.inbox import Inbox, InboxWorker
from holdfast.kit.metering import METER_MODELS, Meter, MeterModels
from holdfast.kit.outbox import OUTBOX_MODELS, Dispatcher, EndpointSecrets, Outbox, OutboxModels
from holdfast.kit.outbox.delivery_worker import Headers
from holdfast.kit.processes import ProcessRegistry
from holdfast.kit.rate_limit import SharedRateLimit
from holdfast.kit.retention import Sweeper
from holdfast.kit.runs import Runner, Runs
from holdfast.kit.schedules import Scheduler
from holdfast.kit.vault import Vault
from holdfast.model import Caller
from holdfast.net import AddressGuard, ConnectionShares, LazySession, RawSender
from holdfast.operation import Operator
from holdfast.runtime.discovery import find_services, select_services
from holdfast.runtime.document_registry import claimed_by_workers, documents_of, key_register
from holdfast.runtime.health import HealthMonitor, queue_of
from holdfast.runtime.inbox_sources import handlers_by_source, reconcile_jobs
from holdfast.runtime.issuers import identities_of, sign_in_of
from holdfast.runtime.part_registry import (
    KIT_PART,
    add_workflows,
    connections_by_collection,
    name_parts,
    purposes_by_name,
)
from holdfast.runtime.settings import settings_of, vault_of
from holdfast.service import AuditPart, Context, Health, Loop, MeterPart, OutboxPart, Parts, Service
from holdfast.store import Store
from holdfast.store_copy import refuse_unfinished_copy
from holdfast.subprocess_worker import StoreSubprocessPool
from holdfast.worker import Supervisor

log = structlog.get_logger("holdfast.runtime")

T = TypeVar("T")
DRAIN_POLL_S: Final = 0.05
AUDITS_MAX: Final = 10_000


class Runtime:
    """The store, the kit and the services of one process. Open it, work or serve, close it.

    Example:
        runtime = await Runtime.open(load_config())
        await runtime.work(stop)
        await runtime.close()
    """

    def __init__(self, config: Config, store: Store, services: Sequence[Service], *, vault: Vault) -> None:
        self.config, self.store, self.services = config, store, services
        self.vault = vault = vault.registered(key_register(services))
        self.clock = store.clock
        self.processes = ProcessRegistry(
            store, version=__version__, claimed=claimed_by_workers(services), key_id=vault.current_key
        )
        self.inbox = Inbox(store)
        self.roles = roles_of(store, documents_of(services))
        self.identities = identities_of(config, store)
        self.oidc_sign_in = sign_in_of(config, store, vault, oidc=self.identities.oidc)
        self._audit = lru_cache(AUDITS_MAX)(self._open_audit)
        self.address_guard = AddressGuard(allow=config.allow)
        self._sender = RawSender(self.address_guard)
        self._shares = ConnectionShares()
        self._http_session = LazySession()
        self.dispatcher = Dispatcher(
            store, self._sender, signing=EndpointSecrets(vault).signing, shares=self._shares
        )
        self._subprocess_pool = StoreSubprocessPool(config.store, env=config.prefix)
        self.runner = Runner(store.privileged())
        self._oauth_providers: dict[str, OAuthProvider] = {}
        self.consent_purposes: dict[str, ConsentPurpose] = {}
        self.connections = Connections(store, vault, self._oauth_providers, purposes=self.consent_purposes)
        self.visitors = {s.name: VisitorSessions(store, vault, service=s.name) for s in services}
        self.parts: dict[str, Parts] = {s.name: s.build(self._context(s)) for s in services}
        for parts in self.parts.values():
            self._oauth_providers.update(parts.oauth_providers)
        self.consent_purposes.update(purposes_by_name(self.parts))
        self.connections_in = connections_by_collection(self.connections, self.parts, store.catalog)
        run_queues = add_workflows(self.runner, self.parts, store.catalog)
        outbox = OutboxPart(name=KIT_PART, models=OUTBOX_MODELS, dispatcher=self.dispatcher)
        outboxes = self._announced(lambda parts: parts.outboxes)
        self.outboxes = name_parts("outbox", outbox, outboxes, plural="outboxes")
        trail = AuditPart(name=KIT_PART, models=AUDIT_MODELS)
        self.audits = name_parts("audit trail", trail, self._announced(lambda parts: parts.audits))
        self.checkpoints = CheckpointFile(config.home / CHECKPOINTS_FILE)
        meter = MeterPart(name=KIT_PART, models=METER_MODELS)
        self.meters = name_parts("meter", meter, self._announced(lambda parts: parts.meters))
        sources = [hook.source for hook in self._announced(lambda parts: parts.webhooks)]
        jobs = self._announced(lambda parts: parts.jobs) + reconcile_jobs(self.inbox, sources)
        self.scheduler = Scheduler(store, jobs)
        self.inbox_worker = InboxWorker(store, handlers_by_source(self.parts))
        self.inbox.local_worker = self.inbox_worker
        self.supervisor = Supervisor(self._loops(), clock=self.clock)
        self.working = False
        self._drain_lock, self._drains = asyncio.Lock(), 0
        self._drain_loops: tuple[asyncio.Event, asyncio.Task[None]] | None = None
        self._health = HealthMonitor(
            store,
            self.parts,
            outboxes=self.outboxes,
            run_queues=run_queues,
            channel_kinds=self.channel_kinds(),
            loops=self._loops_health,
            key_ids=vault.key_ids,
            refusal=lambda: self.processes.refusal,
            writing=lambda: self.processes.problem,
        )

    @classmethod
    async def open(
        cls,
        config: Config,
        *,
        only: Sequence[str] | None = None,
        clock: Clock | None = None,
        services: Sequence[Service] | None = None,
        migrate: bool = True,
    ) -> Runtime:
        """Open the store, migrate it to what is declared, and build the services.

        Without `services` these are the installed ones that `only`, or else the setting, names.
        """
        names = only or (config.services if services is None else None)
        installed = find_services() if services is None else services
        chosen = select_services(installed, names, source="--only" if only else "services")
        vault = vault_of(config)
        documents = documents_of(chosen)
        store = await open_store(config.store, documents, env=config.prefix, clock=clock)
        try:
            runtime = cls(config, store, chosen, vault=vault)
        except BaseException:
            await store.close()
            raise
        try:
            steps = await runtime.processes.start(migrate=migrate)
            if steps:
                log.info("migrated", steps=len(steps), last=steps[-1])
            if migrate:
                await refuse_unfinished_copy(store)
            for parts in runtime.parts.values():
                if parts.start is not None:
                    await parts.start()
        except BaseException:
            # The error that prevented the start matters more than what then failed to close, which is logged.
            with contextlib.suppress(Exception):
                await runtime.close()
            raise
        return runtime

    async def work(self, stop: asyncio.Event) -> None:
        """Run every loop until `stop` is set, which also happens when this release can't go on."""
        self.working = True
        refusal = asyncio.create_task(self._stop_when_refused(stop))
        try:
            await self.supervisor.run(stop)
        finally:
            refusal.cancel()
            self.working = False

    async def _stop_when_refused(self, stop: asyncio.Event) -> None:
        await self.processes.refused.wait()
        stop.set()

    async def drain(self, seconds: float) -> bool:
        """Work on due documents for at most `seconds`; True once none is due.

        Where the loops run already, this only waits for them.
        """
        end = self.clock.monotonic() + seconds
        async with self._loops_running():
            return await self._until_idle(end)

    @asynccontextmanager
    async def _loops_running(self) -> AsyncIterator[None]:
        """Run the loops for the block: one set of them for all concurrent drains."""
        async with self._drain_lock:
            if not self.working and self._drain_loops is None:
                stop = asyncio.Event()
                self._drain_loops = stop, asyncio.create_task(self.work(stop))
            self._drains += 1
        try:
            yield
        finally:
            async with self._drain_lock:
                self._drains -= 1
                if self._drain_loops is not None and not self._drains:
                    (stop, task), self._drain_loops = self._drain_loops, None
                    stop.set()
                    await task

    async def _until_idle(self, end: float) -> bool:
        # Twice in a row: what is claimed between the queries of one check shows in the next.
        idle_checks = 0
        while idle_checks < 2:
            if self.clock.monotonic() >= end:
                return False
            await self.clock.sleep(DRAIN_POLL_S)
            idle = not self._in_flight() and await self._nothing_due()
            idle_checks = idle_checks + 1 if idle else 0
        return True

    async def _nothing_due(self) -> bool:
        """Whether nothing is due that this process works on; due runs may be of others' workflows."""
        of_runs = set(self.runner.kinds)
        queues = [name for name, kind in self._health.queues.items() if kind not in of_runs]
        backlog = await self.backlog()
        return (self.runner.idle or not of_runs) and max(backlog[name] for name in queues) <= 0

    def _in_flight(self) -> int:
        loops = [loop for parts in self.parts.values() for loop in parts.loops.values()]
        outgoing = [outbox.dispatcher.under_way for outbox in self.outboxes.values()]
        of_services = [getattr(loop, "under_way", 0) for loop in loops]
        own = (self.inbox_worker, self.scheduler, self.runner)
        return sum(outgoing) + sum(of_services) + sum(loop.under_way for loop in own)

    async def backlog(self) -> dict[str, float]:
        """Seconds that the oldest due document has waited, by queue; 0 where nothing is due."""
        return await self._health.backlog()

    async def depths(self) -> dict[str, int]:
        """The number of due documents by queue, counted up to `DEPTH_MAX`."""
        return await self._health.depths()

    async def health(self) -> Health:
        """The worst status of all parts, with their reasons; cheap enough for any caller at any rate."""
        return await self._health.health()

    def _loops_health(self) -> Health | None:
        return self.supervisor.health() if self.working else None

    def store_of(self, tenant_id: str) -> Store:
        """A handle that reads one tenant's documents, or with `ALL_TENANTS` everybody's."""
        return self.store.privileged() if tenant_id == ALL_TENANTS else self.store.tenant(tenant_id)

    def runs(self, tenant_id: str) -> dict[str, Runs]:
        """A tenant's runs, or all tenants', by collection: the kit's own, and those of services.

        Example: `page = await runtime.runs("acme")["holdfast_runs"].page(status="failed")`
        """
        store = self.store_of(tenant_id)
        announced = [one for parts in self.parts.values() for one in parts.runs]
        of_services = [Runs(store, models=one.models, joins=one.joins) for one in announced]
        return {one.collection: one for one in (Runs(store), *of_services)}

    def audit(self, tenant_id: str, *, models: AuditModels = AUDIT_MODELS) -> Audit:
        """A tenant's trail: one object for each in this process, so that appends queue in order."""
        return self._audit(tenant_id, models)

    def _open_audit(self, tenant_id: str, models: AuditModels) -> Audit:
        keys = tuple(self.vault.secrets(AUDIT_KEY).values())
        return Audit(self.store, tenant_id, keys=keys, models=models)

    def meter(self, tenant_id: str, *, models: MeterModels = METER_MODELS) -> Meter:
        """A tenant's usage: the platform's own meter, or a service's."""
        return Meter(self.store, tenant_id=tenant_id, models=models)

    def _announced(self, which: Callable[[Parts], Sequence[T]]) -> list[T]:
        return [one for parts in self.parts.values() for one in which(parts)]

    def operator(self, caller: Caller, tenant_id: str, *, actor: str | None = None) -> Operator:
        """Who acts on a tenant's documents, as operations take it.

        Example: `await runs.cancel(runtime, runtime.operator(caller, "acme"), "holdfast_runs", "run-1")`
        """
        return Operator(
            tenant_id=tenant_id, caller=caller, actor=actor or caller.user_id or "nobody", audits=self.audit,
            enter=self.enter,
        )  # fmt: skip

    async def enter(self, caller: Caller, tenant_id: str) -> Caller:
        """The caller with the role that the services' membership collection gives them in a tenant."""
        return caller if self.roles is None else await self.roles.enter(caller, tenant_id)

    def channel_kinds(self) -> list[type[ChannelFields]]:
        """The document classes of channels: the kit's own, and those of services."""
        return [kind for kind in documents_of(self.services) if issubclass(kind, ChannelFields)]

    async def close(self) -> None:
        """Close every part, the store last, also after one fails; failures are logged and raised."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_close, "store", self.store.close)
            stack.push_async_callback(_close, "process registry", self.processes.close)
            stack.push_async_callback(self.close_parts)

    async def close_parts(self) -> None:
        """Close what services and clients have opened; the store stays open."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(_close, "sender", self._sender.close)
            stack.push_async_callback(_close, "HTTP session", self._http_session.close)
            stack.push_async_callback(_close, "subprocess pool", self._subprocess_pool.close)
            for name, parts in reversed(self.parts.items()):
                if parts.close is not None:
                    stack.push_async_callback(_close, name, parts.close)

    def _context(self, service: Service) -> Context:
        return Context(
            store=self.store, clock=self.clock, settings=settings_of(service, self.config), inbox=self.inbox,
            vault=self.vault, public_url=self.config.public_url, home=self.config.home,
            outbox=lambda tenant: Outbox(self.store.tenant(tenant), local_dispatcher=self.dispatcher),
            dispatcher=self._dispatcher_for, connections=self.connections,
            subprocess_pool=self._subprocess_pool, http_session=self._http_session,
            rate_limit=lambda name, quota: SharedRateLimit(self.store, f"{service.name} {name}", quota),
            audit=self.audit, meter=self.meter, runner=self.runner, roles=self.roles,
            visitors=self.visitors[service.name],
        )  # fmt: skip

    def _dispatcher_for(
        self, models: OutboxModels, *, headers: Headers | None = None, plain_header: str | None = None
    ) -> Dispatcher:
        signing = EndpointSecrets(self.vault, plain_header=plain_header).signing
        return Dispatcher(
            self.store, self._sender, signing=signing, shares=self._shares, headers=headers, models=models
        )

    def _loops(self) -> dict[str, Loop]:
        own: dict[str, Loop] = {
            "inbox": self.inbox_worker,
            **{queue_of(outbox): outbox.dispatcher for outbox in self.outboxes.values()},
            "schedules": self.scheduler,
            **({"runs": self.runner} if self.runner.queues else {}),
            "audit checkpoints": self._checkpoint_recorder(),
            "retention": Sweeper(self.store, documents_of(self.services)),
            "pulse": ActivityRecorder(self.store, counts=self._work_counts, waited_s=self._longest_wait_s),
        }
        of_services = {
            f"{name}.{label}": loop for name, p in self.parts.items() for label, loop in p.loops.items()
        }
        return own | of_services

    def _checkpoint_recorder(self) -> CheckpointRecorder:
        url, trails = self.config.audit_url, {name: one.models for name, one in self.audits.items()}
        return CheckpointRecorder(
            self.store, trails, audits=self.audit, file=self.checkpoints,
            publish=publish_to(url, self._sender) if url else None,
        )  # fmt: skip

    def _work_counts(self) -> dict[str, int]:
        counts = [outbox.dispatcher.status().counts for outbox in self.outboxes.values()]
        sent = {name: sum(getattr(one, name) for one in counts) for name in ("delivered", "failed", "dead")}
        return {"handled": self.inbox_worker.handled, **sent}

    async def _longest_wait_s(self) -> float:
        return max((await self.backlog()).values())


async def _close(part: str, close: Callable[[], Awaitable[None]]) -> None:
    try:
        await close()
    except Exception as fault:
        log.error("close failed", part=part, exc_info=fault)
        raise
