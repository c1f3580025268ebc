"""The HTTP application, and the process that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
import uvloop
from litestar import Litestar, get

from holdfast import __version__
from holdfast.config import Config
from holdfast.errors import ConfigError

_GRACE_S = 3


@get("/health", sync_to_thread=False)
def health() -> dict[str, str]:
    """Whether the process answers at all."""
    return {"status": "ok", "version": __version__}


@get("/health/ready", sync_to_thread=False)
def ready() -> dict[str, str]:
    """Whether the process can take work."""
    return {"status": "ready"}


def create_app() -> Litestar:
    """The ASGI application, for any server that speaks ASGI."""
    return Litestar([health, ready], openapi_config=None)


def run(config: Config) -> None:
    """Serve until SIGINT or SIGTERM, then finish open requests and return.

    Raises `ConfigError` when the address can't be had, before anything else is started.
    """
    with _listen(config.host, config.port) as listener:
        settings = uvicorn.Config(
            create_app(),
            http="httptools",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(_Server(settings), listener))


async def _serve(server: _Server, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stderr.write(f"holdfast {__version__} serves on http://{shown}:{port} (Ctrl-C stops it)\n")
    await server.serve(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
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
