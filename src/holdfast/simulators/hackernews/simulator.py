"""The simulated Hacker News over HTTP."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.hackernews.control import COMMANDS
from holdfast.simulators.hackernews.state import HackerNewsState
from holdfast.simulators.server import InjectedFault, RecordedCall, SimulatorServer, json_response

_BAD: Final = "<html><body>Bad login.<br><br><b>Login</b></body></html>"
_CHALLENGE: Final = "<html><body>Validation required. If this doesn't work, email us.</body></html>"


class HackerNewsSimulator(SimulatorServer[HackerNewsState]):
    """The API under `/v0`, the site beside it, on one loopback port.

    Example:
        async with HackerNewsSimulator(clock=SystemClock()) as hackernews:
            hackernews.run(AddStories(count=1_000))
            api = HackerNewsApi(session, clock=clock, base_url=hackernews.api_url)
    """

    def __init__(self, *, clock: Clock, port: int = 0) -> None:
        super().__init__(HackerNewsState(clock), clock=clock, commands=COMMANDS, refuse=_refuse, port=port)
        router = self.app.router
        router.add_get("/v0/item/{id:[0-9]+}.json", self._item)
        router.add_get("/v0/maxitem.json", self._max_item)
        router.add_get("/v0/updates.json", self._updates)
        router.add_get("/v0/{name:(?:new|top|best)stories}.json", self._list)
        router.add_post("/login", self._sign_in)

    @property
    def api_url(self) -> str:
        return f"{self.url}/v0"

    async def _item(self, request: web.Request) -> web.Response:
        item = self.state.items.get(int(request.match_info["id"]))
        await self._pause(item.delay_s if item is not None else 0.0)
        return self._answer(None if item is None else item.answer())

    async def _list(self, request: web.Request) -> web.Response:
        await self._pause()
        return self._answer(self.state.listed(request.match_info["name"]))

    async def _max_item(self, request: web.Request) -> web.Response:
        await self._pause()
        return self._answer(self.state.max_id)

    async def _updates(self, request: web.Request) -> web.Response:
        await self._pause()
        return self._answer({"items": list(dict.fromkeys(reversed(self.state.changed))), "profiles": []})

    async def _sign_in(self, request: web.Request) -> web.Response:
        await self._pause()
        if self.state.down:
            return web.Response(text="Sorry.", status=503)
        form = await request.post()
        account, password = str(form.get("acct", "")), str(form.get("pw", ""))
        verdict = self.state.sign_in(account, password, request.remote or "")
        if verdict == "ok":
            headers = {"Location": str(form.get("goto", "news")), "Set-Cookie": f"user={account}&simulated"}
            return web.Response(status=302, headers=headers)
        text = _CHALLENGE if verdict == "throttled" else _BAD
        return web.Response(text=text, content_type="text/html")

    async def _pause(self, more_s: float = 0.0) -> None:
        if self.state.delay_s + more_s:
            await self._clock.sleep(self.state.delay_s + more_s)

    def _answer(self, value: object) -> web.Response:
        if self.state.down:
            return web.Response(text="unavailable", status=503)
        return json_response(value)

    def _record(self, call: RecordedCall) -> RecordedCall:
        """A password must not be readable in the recorded calls either."""
        return msgspec.structs.replace(call, body="") if call.path == "/login" else call


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    headers = {} if fault.retry_after_s is None else {"Retry-After": str(fault.retry_after_s)}
    return web.Response(text=fault.reason or "unavailable", status=fault.status, headers=headers)
