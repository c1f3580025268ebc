"""What a service is: one folder that says what it keeps, answers, does and shows.

    src/holdfast/services/greetings/__init__.py   service = Service(name="greetings", ...)

A service is found by its place (or by an entry point in the group `holdfast.services`). Its author needs
this module, the store, the kit and the providers; `build` is called once, when the process starts, with a
`Context` that holds everything the service may use, and gives the `Parts` it adds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from holdfast.clock import Clock
from holdfast.kit.audit import Audit
from holdfast.kit.inbox import Handler, Inbox, Source
from holdfast.kit.metering import Meter
from holdfast.kit.outbox import Outbox
from holdfast.kit.schedules import Job
from holdfast.kit.vault import Vault
from holdfast.model import Document
from holdfast.store import Store

Standing = Literal["ok", "degraded", "critical"]


class Health(msgspec.Struct, frozen=True):
    """How a part is doing, in a word, and what a person should know."""

    status: Standing = "ok"
    reasons: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


class Finding(msgspec.Struct, frozen=True):
    """What `doctor` found: fine, or a fault with its remedy."""

    name: str
    fine: bool
    message: str
    remedy: str = ""


class Loop(Protocol):
    """Something that goes on until told to stop."""

    async def run(self, stop: Any) -> None: ...


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Which status a provider's message gets; providers differ in what they take as delivered."""

    kept: int = 202
    duplicate: int = 200
    unverified: int = 401
    malformed: int = 400


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's webhook: verified, kept in the inbox, then answered."""

    path: str
    source: Source
    answers: Answers = Answers()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the console that belongs to a service: where it is and what its link says."""

    path: str
    title: str
    template: str
    data: Callable[[Any], Awaitable[Mapping[str, Any]]]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a service adds to the process."""

    routes: Sequence[Any] = ()
    hooks: Sequence[Hook] = ()
    handlers: Mapping[str, Handler] = {}
    jobs: Sequence[Job] = ()
    loops: Mapping[str, Loop] = {}
    pages: Sequence[Page] = ()
    health: Callable[[], Awaitable[Health]] | None = None
    checks: Sequence[Callable[[], Awaitable[Finding]]] = ()
    start: Callable[[], Awaitable[None]] | None = None


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a service may use. `settings` is its own table of holdfast.toml, already checked."""

    store: Store
    clock: Clock
    settings: Any
    inbox: Inbox
    vault: Vault
    outbox: Callable[[str], Outbox]
    audit: Callable[[str], Audit]
    meter: Callable[[str], Meter]
    public_url: str
    home: Path
    demo: bool = False


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
    commands: Any = None  # a typer.Typer, mounted as `holdfast <name>`

    @property
    def address(self) -> str:
        """Its name in URLs and on the command line."""
        return self.name.replace("_", "-")
