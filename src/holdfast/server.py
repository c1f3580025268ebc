"""The serving process: HTTP routes and console over one runtime; listens first, stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pkgutil import iter_modules
from types import FrameType
from typing import TypeAlias

import uvicorn
import uvloop

from holdfast import __version__, console, site, tracing
from holdfast.config import Config
from holdfast.errors import ConfigError
from holdfast.http.app import create_app
from holdfast.http.asgi import AsgiApp
from holdfast.http.slow_clients import drop_slow
from holdfast.http.webhook_protocol import WebhookProtocol
from holdfast.kit import NO_TENANT
from holdfast.kit.access import ApiTokens
from holdfast.model.access import SERVICE
from holdfast.operations.sessions import make_first_link
from holdfast.runtime import Runtime
from holdfast.service import Service
from holdfast.worker import freeze_gc

_GRACE_S = 3
_LOOK_TICKS = 5
# Prints what the person who started it should know: the runtime, and its address on this machine.
Greeting: TypeAlias = Callable[[Runtime, str], Awaitable[None]]


def compose(runtime: Runtime, *, at_root: bool = False) -> AsgiApp:
    """The application that is served: the API of platform and services, the console, and public pages."""
    pages = [*console.routes(runtime, at_root=at_root), *site.routes(runtime, at_root=at_root)]
    return create_app(runtime, at_root=at_root, more=pages)


def reserved_names() -> set[str]:
    """Names of console pages, which no service can have."""
    return {module.name for module in iter_modules(console.pages.__path__)}


def run(config: Config, *, only: Sequence[str] | None = None, work: bool = True) -> None:
    """Serve, and with `work` run the loops too, until SIGINT or SIGTERM; then finish and return.

    Raises `ConfigError` when the address can't be had, before anything else is started.
    """
    with (
        listen(config.host, config.port) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(live(config, listener, only=only, work=work))


async def live(
    config: Config,
    listener: socket.socket,
    *,
    only: Sequence[str] | None = None,
    work: bool = True,
    services: Sequence[Service] | None = None,
    greet: Greeting | None = None,
) -> None:
    """Serve on a listening socket until a signal; `greet` replaces what is printed at the start."""
    tracing.configure_export()
    runtime = await Runtime.open(config, only=only, services=services)
    try:
        surface = compose(runtime, at_root=only is not None and len(runtime.services) == 1)
        stop = asyncio.Event()
        working = asyncio.create_task(runtime.work(stop)) if work else None
        try:
            await (greet or print_access)(runtime, address_of(listener))
            freeze_gc()
            surface.ready = True
            await _Server(settings(surface), surface, stop).serve(sockets=[listener])
        finally:
            # Also when it ends by itself, or before it began: loops must never outlive what they work with.
            stop.set()
            if working is not None:
                await working
    finally:
        await runtime.close()


def settings(surface: AsgiApp) -> uvicorn.Config:
    """How the server beneath is set up."""
    return uvicorn.Config(
        surface,
        http=WebhookProtocol,
        # Whom to believe about addresses is a setting of ours; the server's own default trusts this machine.
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )


def address_of(listener: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


async def first_link(runtime: Runtime, address: str) -> str | None:
    """The one-time link that lets the first person in; None where somebody has come in already."""
    by = runtime.operator(SERVICE, NO_TENANT, actor="server")
    return await make_first_link(runtime, by, address=runtime.config.public_url or address)


async def print_access(runtime: Runtime, address: str) -> None:
    """Print where it serves, and how to get in while nobody can: nothing is open by default."""
    sys.stderr.write(f"holdfast {__version__} serves on {address} (Ctrl-C stops it)\n")
    sys.stderr.flush()
    link = await first_link(runtime, address)
    if link is not None:
        sys.stdout.write(f"nobody can sign in yet; open this once, within an hour:\n  {link}\n")
    tokens, _ = await ApiTokens(runtime.store).page(limit=1)
    if not tokens:
        sys.stdout.write("there is no API token yet; make one: holdfast tokens create admin --role admin\n")
    sys.stdout.flush()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, or `ConfigError` with what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(_refusal(host, port, error), "port") from None


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken; stop what uses it, or choose another with --port or PORT"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights; choose one above 1023 with --port or PORT"
    return f"can't listen on {host}:{port}: {error.strerror or error}; choose another with --host and --port"


class _Server(uvicorn.Server):
    """Stops on the first signal and then returns.

    The server this builds on raises the signal again once it has stopped, which would turn a
    clean stop into a failure for whatever started the process.
    """

    def __init__(self, settings: uvicorn.Config, surface: AsgiApp, stop: asyncio.Event) -> None:
        super().__init__(settings)
        self._surface, self._stop = surface, stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Loops wind down while requests finish: both take seconds, and there are few until the kill.
        self._surface.ready = False
        self._surface.changes.close()
        self._stop.set()
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if counter % _LOOK_TICKS == 0:
            drop_slow(self.server_state.connections, self._surface.read_s)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        caught = (signal.SIGINT, signal.SIGTERM)
        for one in caught:
            loop.add_signal_handler(one, self.handle_exit, one, None)
        try:
            yield
        finally:
            for one in caught:
                loop.remove_signal_handler(one)
