"""The contract of a service: one folder that declares its documents, routes, jobs, loops and pages.

    src/holdfast/services/greetings/__init__.py   service = Service(name="greetings", ...)

A service is discovered by its folder (or by an entry point in the group `holdfast.services`). Its author
needs this module, the store, the kit and the providers. `build` is called once, when the process starts, with
a `Context` that holds everything the service may use, and returns the `Parts` it adds.
"""

from __future__ import annotations

import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast.clock import Clock, parse_instant
from holdfast.error_format import PLATFORM_FORMAT, ErrorFormat
from holdfast.errors import InvalidError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import CurrentVisitor, Roles, VisitorSessions
from holdfast.kit.access.authorization import has_role
from holdfast.kit.audit import AuditFactory, AuditModels
from holdfast.kit.cache import Cache
from holdfast.kit.connections import ConnectionModels, Connections, ConsentPurpose, OAuthProvider
from holdfast.kit.inbox import Handler, Inbox, Source
from holdfast.kit.metering import MeterFactory, MeterModels
from holdfast.kit.model_checks import check_model
from holdfast.kit.outbox import Dispatcher, Endpoint, Outbox, OutboxModels
from holdfast.kit.outbox.delivery_worker import Headers
from holdfast.kit.rate_limit import RateQuota, SharedRateLimit, WindowQuota
from holdfast.kit.runs import RUN_INDEXES, Join, RunFields, RunModels, Runner, Workflow
from holdfast.kit.schedules import Job
from holdfast.kit.vault import DerivedKey, Vault
from holdfast.model import Caller, Document
from holdfast.net import HttpSession
from holdfast.operation import Operator
from holdfast.store import Store, Transaction

T = TypeVar("T")
HealthStatus = Literal["ok", "degraded", "critical"]


class Health(msgspec.Struct, frozen=True):
    """The health of a part, with reasons and facts for people."""

    status: HealthStatus = "ok"
    reasons: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """One result of `doctor`: fine, or a fault with its remedy."""

    name: str
    fine: bool
    message: str
    remedy: str = ""


class Loop(Protocol):
    """A background loop that runs until `stop` is set."""

    async def run(self, stop: Any) -> None: ...


class WebhookStatuses(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP status of each outcome; providers differ in what they count as delivered."""

    stored: int = 202
    duplicate: int = 200
    unverified: int = 401
    malformed: int = 400


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's webhook: verified, stored in the inbox, then answered.

    A message that can't be stored within `time_limit_s` is answered 504, so that the provider sends it
    again; the default is `limits.request_s`, as for any request.
    """

    path: str
    source: Source
    statuses: WebhookStatuses = WebhookStatuses()
    time_limit_s: float | None = None


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a page, or a form sent from one: the caller, the tenant and the parameters.

    Parameters are checked where they are read; a wrong one raises `InvalidError`, which is shown as a page.
    `query` holds the fields of a form.

    Example: `state = ask.choice("state", ("open", "done"), default="open")`
    """

    caller: Caller
    tenant_id: str
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}
    preferences: str = ""  # what the browser keeps for a public page

    def may(self, role: str) -> bool:
        """Whether the caller has at least this role here, and so whether to show what needs it."""
        return has_role(self.caller, role, self.tenant_id)

    def text(self, name: str, default: str = "", *, characters_max: int = 200) -> str:
        """A text parameter, stripped."""
        value = self.query.get(name, default).strip()
        if len(value) > characters_max:
            raise InvalidError(f"{name} takes at most {characters_max} characters", name)
        return value

    def choice(self, name: str, among: Collection[str], *, default: str) -> str:
        """One of these words, or the default."""
        value = self.query.get(name) or default
        if value not in among and value != default:
            raise InvalidError(f"{name} is one of {', '.join(among)}, not {value[:40]!r}", name)
        return value

    def number(self, name: str, default: int, *, low: int = 0, high: int = 1_000_000) -> int:
        """An integer within the bounds."""
        value = self.query.get(name) or str(default)
        if not re.fullmatch(r"-?[0-9]{1,15}", value) or not low <= int(value) <= high:
            raise InvalidError(f"{name} is a whole number from {low} to {high}", name)
        return int(value)

    def moment(self, name: str) -> datetime | None:
        """A moment such as 2026-11-16T21:00Z, in UTC unless it says otherwise; None where none is given."""
        value = self.text(name)
        if not value:
            return None
        try:
            return parse_instant(value)
        except ValueError as fault:
            raise InvalidError(f"{name} is {fault}", name) from None

    @property
    def cursor(self) -> str | None:
        """The cursor of this page of a list; None for the first."""
        return self.query.get("cursor") or None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the console: its path, title, template, data and the role it needs.

    `path` is below `/console/<address of the service>` and may hold parameters (`/runs/{run_id}`).
    `template` is a file in the folder `pages/` beside the module that has the service's `build`; it is
    rendered with what `data` returns. Changes to the topics in `live` refresh the page's live regions. A page
    with `all_tenants` may be asked for `ALL_TENANTS`; where it is about one document of all those, `data`
    returns that one's `tenant_id`.

    Example: `Page(path="", title="Runs", template="runs.html", data=runs, live=("gwi",))`
    """

    path: str
    title: str
    template: str
    data: Callable[[PageRequest], Awaitable[Mapping[str, Any]]]
    needs: str = "viewer"  # or `person`
    platform: bool = False
    nav: bool = True
    all_tenants: bool = False
    live: Sequence[str] = ()


class PublicPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page for anybody at the service's own address: `/hackernews`, or `/` where it is served alone.

    `template` is a file in the folder `pages/`, with a layout of the service's own; besides what `data`
    returns it is given `base` (the address to begin links with), `caller` (the visitor, or nobody) and
    `asset(name)`. `error.html` there shows what went wrong. A visitor's copy is private to them; anybody
    else's may be kept by caches for `max_age_s`, and is asked for again after that.

    Example: `PublicPage(path="/hidden", template="hidden.html", data=hidden)`
    """

    path: str
    template: str
    data: Callable[[PageRequest], Awaitable[Mapping[str, Any]]]
    max_age_s: int = 0


class PublicForm(msgspec.Struct, frozen=True, kw_only=True):
    """A form of a public page: calls an operation and leads on to another page, without any script.

    `act` returns the path to go on to, below the service's address; the kind of caller is what the operation
    needs. A form that changes nothing but the visitor's own has no operation, and says what it `needs`. Where
    it signs somebody in or out, it sets the visitor's cookie.

    Example: `PublicForm(path="/sign-out", operation=Reader.sign_out, act=sign_out)`
    """

    path: str
    act: Callable[[Operator, PageRequest, CurrentVisitor], Awaitable[str]]
    operation: Any = None
    needs: str = "visitor"
    quota: WindowQuota | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A problem to look at, and the console page that shows it."""

    tone: Literal["warn", "bad"]
    text: str
    path: str
    tenant_id: str
    query: Mapping[str, str] = {}


class OutboxPart(msgspec.Struct, frozen=True, kw_only=True):
    """An outbox with documents of a service's own, which the platform runs and operators operate by name.

    Example: `Parts(outboxes=[OutboxPart(name="parcels", models=MODELS, dispatcher=dispatcher)])`
    """

    name: str
    models: OutboxModels
    dispatcher: Dispatcher
    # The events it puts out: what a new endpoint takes unless it is told otherwise.
    event_types: Sequence[str] = ()
    # What an endpoint's id names, such as "property", and its console page, with {id}.
    endpoint_of: str = ""
    endpoint_page: str = ""
    # Raises for an endpoint that the service has no use for.
    check_endpoint: Callable[[Transaction, Endpoint], Awaitable[None]] | None = None
    # Values of the delivery class's own required fields in a test event.
    test_fields: Mapping[str, Any] = {}


class AuditPart(msgspec.Struct, frozen=True, kw_only=True):
    """An audit trail in a service's own collections, which operators read and verify by name.

    Example: `Parts(audits=[AuditPart(name="reviews", models=REVIEW_AUDIT)])`
    """

    name: str
    models: AuditModels


class MeterPart(msgspec.Struct, frozen=True, kw_only=True):
    """A meter in a service's own collections, which operators read and check by name."""

    name: str
    models: MeterModels


class ConnectionPart(msgspec.Struct, frozen=True, kw_only=True):
    """Connections in a service's own collection; its `ConsentPurpose`s say that sign-ins are stored there.

    Example: `Parts(connections=[ConnectionPart(models=GOOGLE)])`
    """

    models: ConnectionModels


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """Runs with documents of a service's own, and the workflows that the process's runner executes there.

    `joins` take part in every commit of a run, also in that which cancels or retries it.
    """

    models: RunModels
    joins: Sequence[Join] = ()
    workflows: Sequence[Workflow] = ()

    def __post_init__(self) -> None:
        check_model(self.models.run, RunFields, indexes=RUN_INDEXES)


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a service adds to the process. `attention` lists the problems of one tenant."""

    routes: Sequence[Any] = ()
    webhooks: Sequence[Webhook] = ()
    handlers: Mapping[str, Handler] = {}
    jobs: Sequence[Job] = ()
    loops: Mapping[str, Loop] = {}
    workflows: Sequence[Workflow] = ()  # with runs in the kit's collection; others are in their `RunPart`
    pages: Sequence[Page] = ()
    public_pages: Sequence[PublicPage] = ()
    public_forms: Sequence[PublicForm] = ()
    health: Callable[[], Awaitable[Health]] | None = None
    attention: Callable[[str], Awaitable[Sequence[Notice]]] | None = None
    checks: Sequence[Callable[[], Awaitable[CheckResult]]] = ()
    start: Callable[[], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None
    oauth_providers: Mapping[str, OAuthProvider] = {}  # by the provider's name
    consent_purposes: Sequence[ConsentPurpose] = ()
    # Parts of the kit in the service's own collections, shown and operated by every surface.
    outboxes: Sequence[OutboxPart] = ()
    runs: Sequence[RunPart] = ()
    audits: Sequence[AuditPart] = ()
    meters: Sequence[MeterPart] = ()
    connections: Sequence[ConnectionPart] = ()
    queues: Mapping[str, type[Document]] = {}  # documents its own loops claim, for backlog and drain
    caches: Sequence[Cache[Any]] = ()  # for their hits under /metrics
    metrics: Any = None  # a prometheus_client collector, shown under /metrics
    operations: Any = None  # the object that its commands and pages call

    @property
    def paths(self) -> set[str]:
        """The paths of its routes, public pages and forms, below the service's address."""
        public = {page.path or "/" for page in self.public_pages} | {form.path for form in self.public_forms}
        return public | {path for handler in self.routes for path in getattr(handler, "paths", ())}


class CommandContext(Protocol):
    """The `ctx.obj` of a service's commands: access to its operations, and printing.

    Example: `greeting = ctx.obj.with_service("greetings", lambda operations: operations.greet(name))`
    """

    def with_service(self, service: str, act: Callable[[Any], Awaitable[T]]) -> T:
        """Open the configured store with this service, run `act` on its `Parts.operations`, close it."""

    def operate_service(
        self, service: str, act: Callable[[Any, Operator], Awaitable[T]], *, tenant_id: str = NO_TENANT
    ) -> T:
        """Like `with_service`, for an operation: `act` is also given who types here as its `Operator`."""

    def print_table(
        self,
        rows: Iterable[Any],
        columns: Sequence[str],
        *,
        as_json: bool,
        cursor: str | None = None,
        none: str = "",
    ) -> None:
        """Print rows as a table, or as JSON with the cursor of the next page."""

    def print_result(self, answer: Any, text: str, *, as_json: bool) -> None:
        """Print one result: JSON for programs, a line for people."""


class DispatcherFactory(Protocol):
    """Builds the dispatcher of a service with its own delivery documents."""

    def __call__(
        self, models: OutboxModels, *, headers: Headers | None = None, plain_header: str | None = None
    ) -> Dispatcher:
        """A dispatcher that signs with the endpoints' secrets; `plain_header` carries the body's HMAC."""


class WorkerLostError(Exception):
    """A worker subprocess could not start, or exited before its task was done; the message says why."""


class SubprocessWorker(Protocol):
    """A subprocess that does a part of the work."""

    @property
    def ready(self) -> bool:
        """Whether it has started; until then, and if it never does, do the work in this process."""

    def stream(self, given: bytes) -> AsyncGenerator[bytes, None]:
        """Stream the task's output; `WorkerLostError` when the subprocess dies before the end."""


class SubprocessTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task for a subprocess: the documents it reads, and a function from input to output."""

    documents: Sequence[type[Document]]
    act: Callable[[Store, bytes], AsyncIterator[bytes]]


class SubprocessPool(Protocol):
    """Starts worker subprocesses on the same store."""

    def __call__(self, part: str) -> AbstractAsyncContextManager[SubprocessWorker]:
        """A worker for the `SubprocessTask` named `package.module:NAME`, while the block lasts."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a service may use. `settings` is its own table of holdfast.toml, already checked."""

    store: Store
    clock: Clock
    settings: Any
    inbox: Inbox
    vault: Vault
    outbox: Callable[[str], Outbox]
    dispatcher: DispatcherFactory
    connections: Connections  # with the `Parts.oauth_providers` of all services
    audit: AuditFactory  # of the platform's trail, or with `models` of the service's own
    meter: MeterFactory  # likewise
    runner: Runner  # of this process; executes the workflows of all `Parts`
    roles: Roles | None  # by the membership collection that a service declares
    visitors: VisitorSessions  # of this service's own visitors
    subprocess_pool: SubprocessPool
    http_session: HttpSession  # for clients of providers; one for the whole process
    rate_limit: Callable[[str, RateQuota], SharedRateLimit]  # by a name of the service's own
    public_url: str
    home: Path


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a service without any."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one service.

    Example: `service = Service(name="greetings", summary="Says hello.", documents=[Greeting],
    build=build)`
    """

    name: str
    summary: str
    documents: Sequence[type[Document]]
    build: Callable[[Context], Parts]
    settings: type[msgspec.Struct] = NoSettings
    errors: ErrorFormat = PLATFORM_FORMAT  # of its routes and webhooks
    sealed: Mapping[type[Document], Sequence[str]] = {}  # HIDDEN fields the vault seals, for `keys rotate`
    derived_keys: Sequence[DerivedKey] = ()  # the purposes of its `vault.secrets`, for `keys rotate`
    actor_prefixes: Sequence[str] = ()  # of those it names on audit trails, such as "telegram:"
    # A typer.Typer, mounted as `holdfast <name>`; a folder of `holdfast.services` has it in its module
    # `commands`.
    commands: Any = None

    @property
    def address(self) -> str:
        """The name in URLs and on the command line."""
        return self.name.replace("_", "-")
