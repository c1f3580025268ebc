"""The simulated revenue-management system."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.rms.state import Behave, RmsState, ShowCounts, ShowReceived
from holdfast.simulators.server import Command, InjectedFault, SimulatorServer, json_response

COMMANDS: Final[dict[str, type[Command[RmsState]]]] = {
    "behave": Behave,
    "received": ShowReceived,
    "counts": ShowCounts,
}


class RmsSimulator(SimulatorServer[RmsState]):
    """A receiver of webhooks: any path under `/webhooks/`, one for each property.

    Example:
        async with RmsSimulator(clock=SystemClock()) as rms:
            rms.run(Behave(failure_rate=0.3))
            endpoint = rms.webhook_url("property-7")
    """

    def __init__(self, *, clock: Clock, port: int = 0) -> None:
        super().__init__(RmsState(clock), clock=clock, commands=COMMANDS, refuse=_refuse, port=port)
        self.app.router.add_post("/webhooks/{name:.+}", self._receive)

    def webhook_url(self, name: str) -> str:
        return f"{self.url}/webhooks/{name}"

    async def _receive(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        behaviour = self.state.behaviour
        if behaviour.delay_s:
            await self._clock.sleep(behaviour.delay_s)
        message = self.state.receive(request.path, headers, body=await request.read())
        return _response(message.status, message.fault, retry_after_s=behaviour.retry_after_s)


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    return _response(fault.status, fault.reason, retry_after_s=fault.retry_after_s)


def _response(status: int, fault: str, *, retry_after_s: int | None) -> web.Response:
    body = {"received": True} if status == 200 else {"error": fault or "unavailable"}
    asks = status in (429, 503) and retry_after_s is not None
    headers = {"Retry-After": str(retry_after_s)} if asks else {}
    return json_response(body, status=status, headers=headers)
