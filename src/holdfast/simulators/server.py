"""What every simulator is made with: a server on loopback, planned troubles, a record, a control API.

`POST /_control/<command>` with a JSON body runs one command; `GET /_control` lists them. A command is a
struct with a `run`, so that a test in the same process does the same as a person with curl. Every
simulator has `trouble` (plan a `InjectedFault`), `calls` (what came in) and `reset`.
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
    """What a simulator knows."""

    def clear(self) -> None:
        """Forget it all."""
        ...


W = TypeVar("W", bound=SimulatorState)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CALLS_KEPT: Final = 10_000
CONTROL: Final = "/_control"


class Command(
    msgspec.Struct, Generic[W], frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Something a person can cause in a simulator's world `W`; `run` gives what to answer."""

    def run(self, world: W) -> object:
        raise NotImplementedError


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the next `count` calls meet, of those whose method and path fit.

    They wait `delay_s`, then are answered `status` (0: as usual), or `cut` off, or left to `hang`. A `late`
    trouble lets the call have its effect first, so that only the answer is lost.

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
    """A call that came in, without the headers that prove who made it."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: str
    status: int
    answer: str


class InjectedFaults:
    """The troubles that wait for a call, in the order they were planned."""

    def __init__(self) -> None:
        self._planned: list[tuple[InjectedFault, int]] = []

    def add(self, trouble: InjectedFault) -> None:
        self._planned.append((trouble, trouble.count))

    def clear(self) -> None:
        self._planned.clear()

    def take(self, request: web.Request) -> InjectedFault | None:
        """The first one that fits, once fewer."""
        for index, (trouble, left) in enumerate(self._planned):
            if trouble.matches(request):
                self._planned[index] = (trouble, left - 1)
                self._planned = [planned for planned in self._planned if planned[1] > 0]
                return trouble
        return None


class SimulatorServer(Generic[W]):
    """A simulator over its state `W`: HTTP server, injected faults, recorded calls and control API.

    `refuse` renders an injected status as the real service would.
    """

    def __init__(
        self,
        world: W,
        *,
        clock: Clock,
        commands: Mapping[str, type[Command[W]]],
        refuse: Callable[[web.Request, InjectedFault], web.Response],
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.faults = InjectedFaults()
        self.calls: deque[RecordedCall] = deque(maxlen=CALLS_KEPT)
        self.app = web.Application(middlewares=[self._around], client_max_size=16 * 1024 * 1024)
        self.state, self._clock = world, clock
        self._commands, self._refuse = commands, refuse
        self._host, self._port = host, port
        self._runner: web.AppRunner | None = None
        self.app.router.add_get(CONTROL, self._list_commands)
        self.app.router.add_post(CONTROL + "/{command}", self._control)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    async def __aenter__(self) -> Self:
        # A caller that goes away ends its handler, or one left hanging would never end.
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

    def run(self, command: Command[W]) -> object:
        """Run a command, as `POST /_control/…` does."""
        return command.run(self.state)

    def inject(self, trouble: InjectedFault) -> None:
        """Inject a fault into the next matching calls."""
        self.faults.add(trouble)

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(CONTROL):
            return await handler(request)
        body = await request.read()
        response = await self._met(request, handler)
        self.calls.append(_seen(request, body, response))
        return response

    async def _met(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        trouble = self.faults.take(request)
        if trouble is None:
            return await handler(request)
        response = await handler(request) if trouble.late else None
        if trouble.delay_s:
            await self._clock.sleep(trouble.delay_s)
        if trouble.hang:
            await asyncio.get_running_loop().create_future()
        if trouble.cut:
            _cut(request)
            return response or web.Response(status=500)
        if trouble.status:
            return self._refuse(request, trouble)
        return response or await handler(request)

    async def _list_commands(self, request: web.Request) -> web.Response:
        own = {
            "trouble": InjectedFault.__doc__,
            "calls": "The calls that came in: {}.",
            "reset": "Begin anew: {}.",
        }
        return _json(own | {name: command.__doc__ for name, command in sorted(self._commands.items())})

    async def _control(self, request: web.Request) -> web.Response:
        name, body = request.match_info["command"], await request.read() or b"{}"
        try:
            return _json(self._run(name, body))
        except (msgspec.DecodeError, LookupError, ValueError) as error:
            return _json({"error": str(error)}, status=400)

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
        """Begin anew: no troubles, no calls, an empty world."""
        self.faults.clear()
        self.calls.clear()
        self.state.clear()


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _json(value: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)


def _seen(request: web.Request, body: bytes, response: web.StreamResponse) -> RecordedCall:
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
