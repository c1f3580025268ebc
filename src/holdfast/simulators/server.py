"""The common base of simulators: an HTTP server on loopback, injected faults, recorded calls, a control API.

`POST /_control/<command>` with a JSON body runs one command; `GET /_control` lists them. A command is a
struct with a `run`, so that a test in the same process does the same as a person with curl. Every simulator
has `trouble` (inject an `InjectedFault`), `calls` and `reset`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec
from aiohttp import web

from holdfast.clock import Clock


class SimulatorState(Protocol):
    def clear(self) -> None: ...


S = TypeVar("S", bound=SimulatorState)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CALLS_MAX: Final = 10_000
CONTROL: Final = "/_control"


class Command(
    msgspec.Struct, Generic[S], frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A command on a simulator's state; `run` returns the response."""

    def run(self, state: S) -> object:
        raise NotImplementedError


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A fault for the next `count` calls whose method and path match.

    They wait `delay_s`, then are answered `status` (0: as usual), `cut` off, or left to `hang`. A `late`
    fault lets the call take effect first, so that only the response is lost.

    Example: `InjectedFault(count=2, status=503, path="/events", method="PATCH")`
    """

    count: int = 1
    method: str = ""
    path: str = ""
    status: int = 0
    reason: str = ""
    retry_after_s: int | None = None
    delay_s: float = 0.0
    late: bool = False
    cut: bool = False
    hang: bool = False

    def matches(self, request: web.Request) -> bool:
        return self.method in ("", request.method) and self.path in request.path


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A received call, without its Authorization header."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: str
    status: int
    answer: str


class InjectedFaults:
    """Pending faults, in the order they were injected."""

    def __init__(self) -> None:
        self._pending: list[tuple[InjectedFault, int]] = []

    def add(self, fault: InjectedFault) -> None:
        self._pending.append((fault, fault.count))

    def clear(self) -> None:
        self._pending.clear()

    def take(self, request: web.Request) -> InjectedFault | None:
        """The first matching fault, counted down."""
        for index, (fault, left) in enumerate(self._pending):
            if fault.matches(request):
                self._pending[index] = (fault, left - 1)
                self._pending = [pending for pending in self._pending if pending[1] > 0]
                return fault
        return None


class SimulatorServer(Generic[S]):
    """A simulator over its state `W`: HTTP server, injected faults, recorded calls and control API.

    `refuse` renders an injected status as the real service would.
    """

    def __init__(
        self,
        state: S,
        *,
        clock: Clock,
        commands: Mapping[str, type[Command[S]]],
        refuse: Callable[[web.Request, InjectedFault], web.Response],
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.faults = InjectedFaults()
        self.calls: deque[RecordedCall] = deque(maxlen=CALLS_MAX)
        self.app = web.Application(middlewares=[self._middleware], client_max_size=16 * 1024 * 1024)
        self.state, self._clock = state, clock
        self._commands, self._refuse = commands, refuse
        self._host, self._port = host, port
        self._runner: web.AppRunner | None = None
        self.app.router.add_get(CONTROL, self._list_commands)
        self.app.router.add_post(CONTROL + "/{command}", self._control)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    async def __aenter__(self) -> Self:
        # A client that disconnects ends its handler, or one that hangs would never end.
        self._runner = web.AppRunner(
            self.app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *error: Any) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def run(self, command: Command[S]) -> object:
        """Run a command, as `POST /_control/…` does."""
        return command.run(self.state)

    def inject(self, fault: InjectedFault) -> None:
        """Inject a fault into the next matching calls."""
        self.faults.add(fault)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(CONTROL):
            return await handler(request)
        body = await request.read()
        response = await self._handle(request, handler)
        self.calls.append(self._record(_recorded(request, body, response)))
        return response

    def _record(self, call: RecordedCall) -> RecordedCall:
        """Return a call as it may be shown; a simulator with secrets in bodies leaves them out."""
        return call

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        fault = self.faults.take(request)
        if fault is None:
            return await handler(request)
        response = await handler(request) if fault.late else None
        if fault.delay_s:
            await self._clock.sleep(fault.delay_s)
        if fault.hang:
            await asyncio.get_running_loop().create_future()
        if fault.cut:
            _abort(request)
            return response or web.Response(status=500)
        if fault.status:
            return self._refuse(request, fault)
        return response or await handler(request)

    async def _list_commands(self, request: web.Request) -> web.Response:
        own = {
            "trouble": InjectedFault.__doc__,
            "calls": "The received calls: {}.",
            "reset": "Reset the state: {}.",
        }
        named = {name: command.__doc__ for name, command in sorted(self._commands.items())}
        return json_response(own | named)

    async def _control(self, request: web.Request) -> web.Response:
        name, body = request.match_info["command"], await request.read() or b"{}"
        try:
            return json_response(self._run(name, body))
        except (msgspec.DecodeError, LookupError, ValueError) as error:
            return json_response({"error": str(error)}, status=400)

    def _run(self, name: str, body: bytes) -> object:
        if name == "trouble":
            self.faults.add(msgspec.json.decode(body, type=InjectedFault))
            return {}
        if name == "calls":
            return list(self.calls)
        if name == "reset":
            self.reset()
            return {}
        if name not in self._commands:
            raise LookupError(f"no command {name!r}; GET {CONTROL} lists them")
        return msgspec.json.decode(body, type=self._commands[name]).run(self.state)

    def reset(self) -> None:
        """Drop faults and calls, and clear the state."""
        self.faults.clear()
        self.calls.clear()
        self.state.clear()


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def _recorded(request: web.Request, body: bytes, response: web.StreamResponse) -> RecordedCall:
    answer: Any = getattr(response, "body", None)
    return RecordedCall(
        method=request.method,
        path=request.raw_path.partition("?")[0],
        query=list(request.query.items()),
        headers={name: value for name, value in request.headers.items() if name != "Authorization"},
        body=body.decode(errors="replace"),
        status=response.status,
        answer=answer.decode() if isinstance(answer, bytes) else "",
    )
