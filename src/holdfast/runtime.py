"""A running whole: the store, the kit, the services that are there, and the loops that move them.

config ──► Runtime.open ──► store + vault + inbox + outbox + schedules
                              │
                services found by their folder: build(Context) ──► Parts
                              │
        http, cli, console over it; Supervisor keeps the loops
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from holdfast import __version__
from holdfast.app import open_store
from holdfast.clock import Clock, SystemClock
from holdfast.config import Config
from holdfast.copying import Copy, check_whole
from holdfast.errors import ConfigError, DeclarationError
from holdfast.kit.access import ApiToken, Session, SetUp, SignInLink, Tries, User
from holdfast.kit.audit import Audit, AuditEvent, AuditHead
from holdfast.kit.channels import Channel, ChannelFields, Watch
from holdfast.kit.channels.alarm import ending
from holdfast.kit.checkpoints import CheckpointDocument
from holdfast.kit.connections import Connection, Connections, Consent, Provider
from holdfast.kit.connections.models import SEALED_CONSENT, SEALED_TOKENS
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.inbox import Handler, Inbox, InboxItem, InboxLane, InboxWorker
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.metering import Allowance, Meter, UsageEvent, UsageSum
from holdfast.kit.outbox import (
    AddressGuard,
    DeadLetter,
    Delivery,
    Dispatcher,
    Endpoint,
    EndpointNotice,
    EndpointSecrets,
    FifoLane,
    Kinds,
    Outbox,
    RawSender,
)
from holdfast.kit.outbox.courier import Headers
from holdfast.kit.pulse import Pulse, PulseKeeper
from holdfast.kit.releases import Release, note_release
from holdfast.kit.retention import Sweeper
from holdfast.kit.runs import RunDocument, StepDocument
from holdfast.kit.schedules import Job, Schedule, Scheduler, SlotRun
from holdfast.kit.vault import Rotation, Vault, new_key
from holdfast.model import Document
from holdfast.service import Context, Health, Loop, Parts, Service
from holdfast.store import Store
from holdfast.worker import Supervisor

log = structlog.get_logger("holdfast.runtime")

ENTRY_POINTS: Final = "holdfast.services"
KEYS_FILE: Final = "keys"
KIT_DOCUMENTS: Final[tuple[type[Document], ...]] = (
    Allowance, ApiToken, AuditEvent, AuditHead, Channel, CheckpointDocument, Connection, Consent, Copy,
    DeadLetter, Delivery, Endpoint, EndpointNotice, FifoLane, IdempotencyDocument, InboxItem, InboxLane,
    LeaseDocument, Pulse, Release, Rotation, RunDocument, Schedule, Session, SetUp, SignInLink, SlotRun,
    StepDocument, Tries, UsageEvent, UsageSum, User, Watch,
)  # fmt: skip
KIT_SEALED: Final[Mapping[type[Document], Sequence[str]]] = {
    Connection: SEALED_TOKENS,
    Consent: SEALED_CONSENT,
    Endpoint: ("secrets.sealed",),
}
_QUEUES: Final[dict[str, type[Document]]] = {"inbox": InboxItem, "outbox": Delivery, "schedules": Schedule}
_WORST: Final = ("ok", "degraded", "critical")
# What is due is taken within moments; what waits so long says that nobody works, or that it is too much.
BACKLOG_S_MAX: Final = 60.0
DRAIN_LOOK_S: Final = 0.05
DEPTH_MAX: Final = 1_000


def find_services() -> list[Service]:
    """Every service there is: the folders of `holdfast.services`, and what other packages announce."""
    found = [_service_in(name) for name in _folders()]
    found += [entry.load() for entry in entry_points(group=ENTRY_POINTS)]
    names = [service.name for service in found]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"two services are called {name!r}; rename one")
    return sorted(found, key=lambda service: service.name)


def documents_of(services: Sequence[Service]) -> list[type[Document]]:
    """Every class a process keeps: the kit's, and those of its services."""
    return list(dict.fromkeys([*KIT_DOCUMENTS, *(cls for service in services for cls in service.documents)]))


def sealed_of(services: Sequence[Service]) -> dict[type[Document], Sequence[str]]:
    """Which fields hold what the vault sealed: the kit's, and those of the services."""
    return {**KIT_SEALED, **{cls: fields for one in services for cls, fields in one.sealed.items()}}


def _folders() -> list[str]:
    try:
        package = importlib.import_module(ENTRY_POINTS)
    except ModuleNotFoundError:
        return []
    return [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]


def _service_in(folder: str) -> Service:
    module = importlib.import_module(f"{ENTRY_POINTS}.{folder}")
    service = getattr(module, "service", None)
    if not isinstance(service, Service) or service.name != folder:
        raise DeclarationError(f"{module.__name__} must have `service = Service(name={folder!r}, ...)`")
    return service


class Runtime:
    """Everything one process holds. Open it, work or serve, close it.

    Example:
        runtime = await Runtime.open(load_config())
        await runtime.work(stop)
        await runtime.close()
    """

    def __init__(self, config: Config, store: Store, services: Sequence[Service], *, vault: Vault) -> None:
        self.config, self.store, self.services, self.vault = config, store, services, vault
        self.clock = store.clock
        self.inbox = Inbox(store)
        self._sender = RawSender(AddressGuard(allow=config.allow))
        self.dispatcher = Dispatcher(store, self._sender, signing=EndpointSecrets(vault).signing)
        self._grants: dict[str, Provider] = {}
        self.connections = Connections(store, vault, self._grants)
        self.parts: dict[str, Parts] = {s.name: s.build(self._context(s)) for s in services}
        for parts in self.parts.values():
            self._grants.update(parts.grants)
        self.scheduler = Scheduler(store, self._jobs())
        self.inbox_worker = InboxWorker(store, self._handlers())
        self.supervisor = Supervisor(self._loops(), clock=self.clock)
        self.working = False
        self._looking: asyncio.Task[Health] | None = None

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
        """Open the store, bring it to what is declared, and build the services."""
        chosen = _chosen(find_services() if services is None else services, only)
        vault = vault_of(config)
        documents = documents_of(chosen)
        store = await open_store(config.store, documents, env=config.prefix, clock=clock or SystemClock())
        try:
            if migrate:
                steps = await store.migrate()
                if steps:
                    log.info("migrated", steps=len(steps), last=steps[-1])
                await check_whole(store)
                await note_release(store, __version__)
            runtime = cls(config, store, chosen, vault=vault)
            for parts in runtime.parts.values():
                if parts.start is not None:
                    await parts.start()
        except BaseException:
            await store.close()
            raise
        return runtime

    async def work(self, stop: asyncio.Event) -> None:
        """Run every loop until told to stop."""
        self.working = True
        try:
            await self.supervisor.run(stop)
        finally:
            self.working = False

    async def drain(self, seconds: float) -> bool:
        """Work on what is due for at most `seconds`; True once nothing is left that is due.

        Where the loops run anyway, this only waits for them.
        """
        stop = asyncio.Event()
        task = None if self.working else asyncio.create_task(self.work(stop))
        end = self.clock.monotonic() + seconds
        try:
            return await self._until_idle(end)
        finally:
            stop.set()
            if task is not None:
                await task

    async def _until_idle(self, end: float) -> bool:
        # Two looks in a row: what is claimed between the questions of one look shows in the next.
        quiet = 0
        while quiet < 2:
            if self.clock.monotonic() >= end:
                return False
            await self.clock.sleep(DRAIN_LOOK_S)
            quiet = quiet + 1 if not self._under_way() and max((await self.backlog()).values()) <= 0 else 0
        return True

    def _under_way(self) -> int:
        sending = self.dispatcher.status()
        held = sending.buffered + sending.in_flight + sending.unsettled
        theirs = [getattr(loop, "under_way", 0) for p in self.parts.values() for loop in p.loops.values()]
        return held + self.inbox_worker.under_way + self.scheduler.under_way + sum(theirs)

    async def backlog(self) -> dict[str, float]:
        """For how many seconds the oldest due work has waited, by loop; 0 where nothing is due."""
        store, now = self.store.privileged(), self.clock.now()
        waited: dict[str, float] = {}
        for name, kind in self._queues().items():
            due = await store.next_due(kind)
            waited[name] = 0.0 if due is None else max(0.0, (now - due).total_seconds())
        return waited

    async def depths(self) -> dict[str, int]:
        """How many wait to be worked on now, by loop, counting no further than `DEPTH_MAX`."""
        store = self.store.privileged()
        return {name: await store.count_due(kind, limit=DEPTH_MAX) for name, kind in self._queues().items()}

    async def health(self) -> Health:
        """The whole's health: the worst of its parts, with their reasons.

        Anybody may ask, as often as they like: those who ask at the same time share one look.
        """
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(lambda _: setattr(self, "_looking", None))
        return await asyncio.shield(self._looking)

    async def _look(self) -> Health:
        found: dict[str, Health] = {"backlog": await self._backlog_health()}
        found["channels"] = await self._channel_health()
        if self.working:
            found["loops"] = self.supervisor.health()
        for name, parts in self.parts.items():
            if parts.health is not None:
                found[name] = await parts.health()
        worst = max((h.status for h in found.values()), key=_WORST.index)
        reasons = tuple(f"{name}: {reason}" for name, h in found.items() for reason in h.reasons)
        return Health(worst, reasons, {name: h.facts for name, h in found.items() if h.facts})

    async def _backlog_health(self) -> Health:
        old = {name: s for name, s in (await self.backlog()).items() if s > BACKLOG_S_MAX}
        reasons = tuple(f"{name}: the oldest due work has waited for {s:.0f} s" for name, s in old.items())
        return Health("degraded" if old else "ok", reasons)

    async def _channel_health(self) -> Health:
        late = [one for kind in self.channel_kinds() for one in await ending(self.store, kind)]
        return Health("degraded" if late else "ok", tuple(str(one) for one in late))

    def channel_kinds(self) -> list[type[ChannelFields]]:
        """The classes that channels are kept in: the kit's own, and those of services."""
        return [kind for kind in documents_of(self.services) if issubclass(kind, ChannelFields)]

    async def close(self) -> None:
        for parts in self.parts.values():
            if parts.close is not None:
                await parts.close()
        await self._sender.close()
        await self.store.close()

    # -- composing --------------------------------------------------------------------------------

    def _context(self, service: Service) -> Context:
        return Context(
            store=self.store, clock=self.clock, settings=settings_of(service, self.config), inbox=self.inbox,
            vault=self.vault, public_url=self.config.public_url, home=self.config.home,
            outbox=lambda tenant: Outbox(self.store.tenant(tenant), near=self.dispatcher),
            dispatcher=self._dispatcher_for, connections=self.connections,
            audit=lambda tenant: Audit(self.store, tenant_id=tenant),
            meter=lambda tenant: Meter(self.store, tenant_id=tenant),
        )  # fmt: skip

    def _dispatcher_for(
        self, kinds: Kinds, *, headers: Headers | None = None, plain_header: str | None = None
    ) -> Dispatcher:
        signing = EndpointSecrets(self.vault, plain_header=plain_header).signing
        return Dispatcher(self.store, self._sender, signing=signing, headers=headers, kinds=kinds)

    def _jobs(self) -> list[Job]:
        return [job for parts in self.parts.values() for job in parts.jobs]

    def _queues(self) -> dict[str, type[Document]]:
        theirs = {
            f"{name}.{label}": kind for name, p in self.parts.items() for label, kind in p.queues.items()
        }
        return _QUEUES | theirs

    def _handlers(self) -> dict[str, Handler]:
        return {
            source: handler for parts in self.parts.values() for source, handler in parts.handlers.items()
        }

    def _loops(self) -> dict[str, Loop]:
        own: dict[str, Loop] = {
            "inbox": self.inbox_worker,
            "outbox": self.dispatcher,
            "schedules": self.scheduler,
            "retention": Sweeper(self.store, documents_of(self.services)),
            "pulse": PulseKeeper(self.store, counts=self._done_so_far, waited_s=self._longest_wait_s),
        }
        theirs = {
            f"{name}.{label}": loop for name, p in self.parts.items() for label, loop in p.loops.items()
        }
        return own | theirs

    def _done_so_far(self) -> dict[str, int]:
        sent = self.dispatcher.status().counts
        handled = self.inbox_worker.handled
        return {"handled": handled, "delivered": sent.delivered, "failed": sent.failed, "dead": sent.dead}

    async def _longest_wait_s(self) -> float:
        return max((await self.backlog()).values())


def settings_of(service: Service, config: Config) -> Any:
    """A service's own table of the settings, checked; `ConfigError` names it."""
    table = dict(config.services.get(service.name, {}))
    for field in msgspec.structs.fields(service.settings):
        variable = f"HOLDFAST_{service.name}_{field.name}".upper()
        if os.environ.get(variable):
            table[field.encode_name] = os.environ[variable]
    try:
        return msgspec.convert(table, service.settings, strict=False)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"[services.{service.name}]: {fault}", service.name) from None


def _chosen(services: Sequence[Service], only: Sequence[str] | None) -> list[Service]:
    if not only:
        return list(services)
    known = {word: service for service in services for word in (service.name, service.address)}
    unknown = [name for name in only if name not in known]
    if unknown:
        there = ", ".join(sorted(service.address for service in services)) or "none"
        raise ConfigError(
            f"--only {unknown[0]}: there is no service of that name; there are: {there}", "only"
        )
    return [known[name] for name in dict.fromkeys(only)]


def vault_of(config: Config) -> Vault:
    """What seals and opens secrets here: by the keys that are set, else by those kept in the home."""
    return Vault.from_settings(config.keys or _own_keys(config.home))


def _own_keys(home: Path) -> str:
    """The keys of a store that nobody gave any: made once, kept beside it, readable by its owner alone."""
    path = home / KEYS_FILE
    try:
        if not path.exists():
            home.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(new_key("first"))
        return path.read_text()
    except OSError as fault:
        raise ConfigError(f"can't keep keys in {path}: {fault.strerror}; set HOLDFAST_KEYS", "keys") from None
