"""What a service is: one folder that says what it keeps, answers, does and shows.

    src/holdfast/services/greetings/__init__.py   service = Service(name="greetings", ...)

A service is found by its place (or by an entry point in the group `holdfast.services`). Its author needs
this module, the store, the kit and the providers; `build` is called once, when the process starts, with a
`Context` that holds everything the service may use, and gives the `Parts` it adds.
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
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import InvalidError
from holdfast.kit.access.authorization import has_role
from holdfast.kit.audit import Audit
from holdfast.kit.connections import Connections, OAuthProvider
from holdfast.kit.inbox import Handler, Inbox, Source
from holdfast.kit.metering import Meter
from holdfast.kit.outbox import Dispatcher, Outbox, OutboxModels
from holdfast.kit.outbox.delivery_worker import Headers
from holdfast.kit.runs import Runs
from holdfast.kit.schedules import Job
from holdfast.kit.vault import Vault
from holdfast.model import Caller, Document
from holdfast.store import Store

T = TypeVar("T")
HealthStatus = Literal["ok", "degraded", "critical"]


class Health(msgspec.Struct, frozen=True):
    """How a part is doing, in a word, and what a person should know."""

    status: HealthStatus = "ok"
    reasons: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """What `doctor` found: fine, or a fault with its remedy."""

    name: str
    fine: bool
    message: str
    remedy: str = ""


class Loop(Protocol):
    """Something that goes on until told to stop."""

    async def run(self, stop: Any) -> None: ...


class WebhookStatuses(msgspec.Struct, frozen=True, kw_only=True):
    """Which status a provider's message gets; providers differ in what they take as delivered."""

    kept: int = 202
    duplicate: int = 200
    unverified: int = 401
    malformed: int = 400


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's webhook: verified, kept in the inbox, then answered.

    What can't be kept within `time_limit_s` is answered 504, so that the provider sends it again; without
    one, `request_s` of the limits holds, as for any request.
    """

    path: str
    source: Source
    answers: WebhookStatuses = WebhookStatuses()
    time_limit_s: float | None = None


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a page of the console is asked: by whom, about whose documents, with which parameters.

    What a person typed into the address is checked where it is read; what does not fit raises
    `InvalidError`, which the console shows as a page.

    Example: `state = ask.choice("state", ("open", "done"), default="open")`
    """

    caller: Caller
    tenant_id: str
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}

    def may(self, role: str) -> bool:
        """Whether the caller has at least this role here: whether to show what only they can do."""
        return has_role(self.caller, role, self.tenant_id)

    def text(self, name: str, default: str = "", *, characters_max: int = 200) -> str:
        """A word from the address, without blanks around it."""
        value = self.query.get(name, default).strip()
        if len(value) > characters_max:
            raise InvalidError(f"{name} takes at most {characters_max} characters", name)
        return value

    def choice(self, name: str, among: Collection[str], *, default: str) -> str:
        """One of these words; the default where none is given."""
        value = self.query.get(name) or default
        if value not in among and value != default:
            raise InvalidError(f"{name} is one of {', '.join(among)}, not {value[:40]!r}", name)
        return value

    def number(self, name: str, default: int, *, low: int = 0, high: int = 1_000_000) -> int:
        """A whole number between the two."""
        value = self.query.get(name) or str(default)
        if not re.fullmatch(r"-?[0-9]{1,15}", value) or not low <= int(value) <= high:
            raise InvalidError(f"{name} is a whole number from {low} to {high}", name)
        return int(value)

    @property
    def cursor(self) -> str | None:
        """Where this page of a list goes on; None at its start."""
        return self.query.get("cursor") or None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the console: where it is, what its link says, what it shows and who may see it.

    `path` is below `/console/<address of the service>` and may hold parameters (`/runs/{run_id}`).
    `template` is a file in the folder `pages/` beside the module that has the service's `build`; it is
    rendered with what `data` gives. Changes to the topics in `live` refresh the page's live regions.

    Example: `Page(path="", title="Runs", template="runs.html", data=runs, live=("gwi",))`
    """

    path: str
    title: str
    template: str
    data: Callable[[PageRequest], Awaitable[Mapping[str, Any]]]
    needs: str = "viewer"
    platform: bool = False
    nav: bool = True
    live: Sequence[str] = ()


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person should look at, and the console's page that shows it."""

    tone: Literal["warn", "bad"]
    text: str
    path: str
    tenant_id: str
    query: Mapping[str, str] = {}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a service adds to the process. `attention` tells of one tenant what needs somebody."""

    routes: Sequence[Any] = ()
    webhooks: Sequence[Webhook] = ()
    handlers: Mapping[str, Handler] = {}
    jobs: Sequence[Job] = ()
    loops: Mapping[str, Loop] = {}
    pages: Sequence[Page] = ()
    health: Callable[[], Awaitable[Health]] | None = None
    attention: Callable[[str], Awaitable[Sequence[Notice]]] | None = None
    checks: Sequence[Callable[[], Awaitable[CheckResult]]] = ()
    start: Callable[[], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] | None = None
    oauth_providers: Mapping[
        str, OAuthProvider
    ] = {}  # where people connect their accounts, by the provider's name
    # Its own runs of a tenant, where it keeps them as documents of its own: people see and cancel them.
    runs: Sequence[Callable[[str], Runs]] = ()
    queues: Mapping[str, type[Document]] = {}  # what its own loops claim: its backlog is watched and drained
    metrics: Any = None  # a prometheus_client collector, shown under /metrics
    operations: Any = None  # what its own commands and pages work with


class CommandContext(Protocol):
    """What a service's commands find as `ctx.obj`: a way to what the service works with, and ways to print.

    Example: `told = ctx.obj.with_service("greetings", lambda keeper: keeper.greet(name))`
    """

    def with_service(self, service: str, act: Callable[[Any], Awaitable[T]]) -> T:
        """Open the configured store with this service, run the act on its `Parts.operations`, close it."""

    def print_table(
        self,
        rows: Iterable[Any],
        columns: Sequence[str],
        *,
        as_json: bool,
        cursor: str | None = None,
        none: str = "",
    ) -> None:
        """Rows as a table, or as JSON with the cursor of the next page."""

    def print_result(self, answer: Any, text: str, *, as_json: bool) -> None:
        """One thing: for programs as JSON, for people as a line."""


class DispatcherFactory(Protocol):
    """Makes the dispatcher of a service that keeps deliveries as documents of its own."""

    def __call__(
        self, models: OutboxModels, *, headers: Headers | None = None, plain_header: str | None = None
    ) -> Dispatcher:
        """One that signs with the endpoints' secrets; `plain_header` has the body's signature too."""


class WorkerLostError(Exception):
    """A process beside this one could not begin, or ended before its work was done; the message says why."""


class SubprocessWorker(Protocol):
    """A process beside this one that does a part of the work."""

    @property
    def ready(self) -> bool:
        """Whether it has begun; until then, and should it never, the work is better done here."""

    def stream(self, given: bytes) -> AsyncGenerator[bytes, None]:
        """What the part makes of what is given; `WorkerLostError` where that ends too early."""


class SubprocessTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a companion does: it reads these documents, and gives what it makes of what it is given."""

    documents: Sequence[type[Document]]
    act: Callable[[Store, bytes], AsyncIterator[bytes]]


class SubprocessPool(Protocol):
    """Starts companions, which look at the same store."""

    def __call__(self, part: str) -> AbstractAsyncContextManager[SubprocessWorker]:
        """A worker for the `SubprocessTask` named `package.module:NAME`, while the block lasts."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a service may use. `settings` is its own table of holdfast.toml, already checked."""

    store: Store
    clock: Clock
    settings: Any
    inbox: Inbox
    vault: Vault
    outbox: Callable[[str], Outbox]
    dispatcher: DispatcherFactory
    connections: Connections  # knows the providers of all services' `Parts.grants`
    audit: Callable[[str], Audit]
    meter: Callable[[str], Meter]
    subprocess_pool: SubprocessPool
    public_url: str
    home: Path


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For services that need none."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service, declared.

    Example: `service = Service(name="greetings", summary="Says hello.", documents=[Greeting], build=build)`
    """

    name: str
    summary: str
    documents: Sequence[type[Document]]
    build: Callable[[Context], Parts]
    settings: type[msgspec.Struct] = NoSettings
    sealed: Mapping[type[Document], Sequence[str]] = {}  # fields the vault seals, for `keys rotate`
    # A typer.Typer, mounted as `holdfast <name>`; a folder of `holdfast.services` has its module `commands`.
    commands: Any = None

    @property
    def address(self) -> str:
        """Its name in URLs and on the command line."""
        return self.name.replace("_", "-")
