"""The simulated Google."""

from __future__ import annotations

from typing import Any, Self

from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.google.control import COMMANDS
from holdfast.simulators.google.refusals import Refusal
from holdfast.simulators.google.routes import Routes, error_response
from holdfast.simulators.google.state import GoogleState
from holdfast.simulators.server import InjectedFault, SimulatorServer, json_response


class GoogleSimulator(SimulatorServer[GoogleState]):
    """Google's token endpoint, Calendar v3 with push, and Sheets v4, on one loopback port.

    `http_on_loopback` lets channels name plain HTTP addresses on this machine; the real Google never does.

    Example:
        async with GoogleSimulator(clock=SystemClock()) as google:
            google.run(AddPerson(email="alice@hoge.jp"))
            calendar = GoogleCalendar(session, tokens, clock=clock, base_url=google.calendar_url)
    """

    def __init__(self, *, clock: Clock, port: int = 0, http_on_loopback: bool = False) -> None:
        state = GoogleState(clock, http_on_loopback=http_on_loopback)
        super().__init__(state, clock=clock, commands=COMMANDS, refuse=_refuse, port=port)
        Routes(state).add_to(self.app)

    @property
    def calendar_url(self) -> str:
        return f"{self.url}/calendar/v3"

    @property
    def sheets_url(self) -> str:
        return f"{self.url}/v4"

    async def __aenter__(self) -> Self:
        await self.state.channels.start()
        await super().__aenter__()
        self.state.url = self.url
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.state.channels.close()
        await super().__aexit__(*error)

    def service_account(self, name: str = "holdfast", *, scopes: list[str] | None = None) -> dict[str, str]:
        """The key file of a new service account."""
        return self.state.add_service_account(name, scopes=scopes)

    def oauth_client(
        self, name: str = "holdfast", *, redirect_uris: list[str]
    ) -> dict[str, dict[str, object]]:
        """The JSON file of a new OAuth client."""
        return self.state.add_app(name, redirect_uris=redirect_uris)

    async def wait_for_pushes(self) -> None:
        """Return once every push so far was delivered or abandoned."""
        await self.state.channels.join()


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    if request.path in ("/token", "/revoke"):
        return json_response({"error": fault.reason or "internal_failure"}, status=fault.status)
    return error_response(request, Refusal(fault.status, fault.reason, retry_after_s=fault.retry_after_s))
