"""The simulated GitHub: the REST API for one App, and its webhook."""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec
from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.github.control import COMMANDS
from holdfast.simulators.github.events import GithubEvents
from holdfast.simulators.github.refusals import ApiRefusal
from holdfast.simulators.github.routes import GithubRoutes
from holdfast.simulators.github.state import APP_ID, GithubState
from holdfast.simulators.server import InjectedFault, RecordedCall, SimulatorServer


class GithubSimulator(SimulatorServer[GithubState]):
    """GitHub for one App, whose id is `app_id` and whose key is `private_key`.

    Example:
        async with GithubSimulator(clock=SystemClock()) as github:
            github.run(AddRepository(name="acme/api"))
            github.run(Install(account="acme"))
            github.run(OpenIssue(repo="acme/api", title="It breaks"))
    """

    app_id: Final = str(APP_ID)

    def __init__(self, *, clock: Clock, port: int = 0) -> None:
        state = GithubState(clock)
        super().__init__(state, clock=clock, commands=COMMANDS, refuse=_refuse, port=port)
        GithubRoutes(state, GithubEvents(state)).add_to(self.app)

    @property
    def private_key(self) -> str:
        return self.state.private_key

    async def __aenter__(self) -> Self:
        await self.state.hook.start()
        await super().__aenter__()
        self.state.url = self.url
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.state.hook.close()
        await super().__aexit__(*error)

    async def wait_for_deliveries(self) -> None:
        """Return once every event so far was sent, or could not be."""
        await self.state.hook.join()

    def _record(self, call: RecordedCall) -> RecordedCall:
        if call.path.endswith("/access_tokens"):
            return msgspec.structs.replace(call, answer="")
        return call


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return ApiRefusal(fault.status, fault.reason or "Server Error", headers=headers).response()
