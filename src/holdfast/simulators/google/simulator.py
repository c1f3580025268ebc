"""The simulated Google as a thing to start and stop."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.google.control import COMMANDS
from holdfast.simulators.google.refusals import Refusal
from holdfast.simulators.google.routes import Routes, phrased
from holdfast.simulators.google.world import GoogleState
from holdfast.simulators.server import Command, InjectedFault, SimulatorServer


class GoogleSimulator:
    """Google's token endpoint, Calendar v3 with push, and Sheets v4, on one loopback port.

    `http_on_loopback` lets channels name plain HTTP addresses on this machine; the real Google never does.

    Example:
        async with GoogleSimulator(clock=SystemClock()) as google:
            google.run(AddPerson(email="alice@hoge.jp"))
            calendar = GoogleCalendar(session, tokens, clock=clock, base_url=google.calendar_url)
    """

    def __init__(self, *, clock: Clock, port: int = 0, http_on_loopback: bool = False) -> None:
        self._world = GoogleState(clock, http_on_loopback=http_on_loopback)
        self._serving = SimulatorServer(
            self._world, clock=clock, commands=COMMANDS, refuse=_refuse, port=port
        )
        self.calls = self._serving.calls
        Routes(self._world).add_to(self._serving.app)

    @property
    def url(self) -> str:
        return self._serving.url

    @property
    def calendar_url(self) -> str:
        return f"{self.url}/calendar/v3"

    @property
    def sheets_url(self) -> str:
        return f"{self.url}/v4"

    async def __aenter__(self) -> Self:
        await self._world.channels.start()
        await self._serving.__aenter__()
        self._world.url = self.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._world.channels.close()
        await self._serving.__aexit__(kind, error, trace)

    def run(self, command: Command[GoogleState]) -> object:
        """Cause something, as `POST /_control/…` does."""
        return command.run(self._world)

    def trouble(self, trouble: InjectedFault) -> None:
        """Plan what the next calls meet."""
        self._serving.troubles.plan(trouble)

    def service_account(self, name: str = "holdfast", *, scopes: list[str] | None = None) -> dict[str, str]:
        """A new service account's key file."""
        return self._world.add_service_account(name, scopes=scopes)

    def oauth_client(
        self, name: str = "holdfast", *, redirect_uris: list[str]
    ) -> dict[str, dict[str, object]]:
        """The JSON file of a new OAuth client that people can let in."""
        return self._world.add_app(name, redirect_uris=redirect_uris)

    async def pushed(self) -> None:
        """Return once every push so far was delivered or given up."""
        await self._world.channels.settled()


def _refuse(request: web.Request, trouble: InjectedFault) -> web.Response:
    if request.path in ("/token", "/revoke"):
        body = f'{{"error": "{trouble.reason or "internal_failure"}"}}'
        return web.Response(text=body, status=trouble.status, content_type="application/json")
    return phrased(request, Refusal(trouble.status, trouble.reason, retry_after_s=trouble.retry_after_s))
