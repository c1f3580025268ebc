"""A provider of grants to test against: it replaces refresh tokens at each use, as strict ones do."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.errors import HoldfastError, ReauthRequiredError
from holdfast.kit.connections import Connection, ConnectionFields, Connections
from holdfast.kit.vault import new_key
from holdfast.store import Store
from holdfast.testing import ManualClock

BACK: Final = "https://app.example/back"
OLD_KEY: Final = new_key("old")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    access_token: str
    refresh_token: str = ""
    expires_in_s: float | None = 3_600.0
    scopes: tuple[str, ...] = ()
    account: str = ""
    name: str = ""


class FakeOAuthProvider:
    """Knows whom it gave what. A refresh token ends when its successor is used, or at once (`strict`)."""

    def __init__(self, clock: ManualClock, *, rotates: bool = True, strict: bool = False) -> None:
        self.clock, self.rotates, self.strict = clock, rotates, strict
        self.account, self.name, self.scopes = "1042", "ann@hoge.jp", ("calendar",)
        self.codes: dict[str, tuple[str, str]] = {}
        self.living: dict[str, str] = {}  # refresh token to the one it replaced
        self.refreshes = 0
        self.revoked: list[str] = []
        self.fault: HoldfastError | None = None
        self.answered = asyncio.Event()
        self.pause: asyncio.Event | None = None  # between making the answer and giving it
        self._numbers = itertools.count(1)

    def authorize_url(
        self, *, state: str, challenge: str, redirect_uri: str, scopes: Sequence[str], hint: str
    ) -> str:
        code = f"code-{next(self._numbers)}"
        self.codes[code] = (challenge, redirect_uri)
        return (
            f"https://registrar.example/auth?state={state}&code={code}&scope={'+'.join(scopes)}&hint={hint}"
        )

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> Given:
        self._fail()
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        if self.codes.pop(code, None) != (digest, redirect_uri):
            raise ReauthRequiredError("the code is not good")
        return self._given(refresh_token=self._replace(""))

    async def refresh(self, refresh_token: str) -> Given:
        self.refreshes += 1
        self._fail()
        if refresh_token not in self.living:
            raise ReauthRequiredError("invalid_grant")
        given = self._given(refresh_token=self._replace(refresh_token) if self.rotates else "")
        self.answered.set()
        if self.pause is not None:
            await self.pause.wait()
        return given

    async def revoke(self, token: str) -> None:
        self._fail()
        self.revoked.append(token)
        self.living.clear()

    def _fail(self) -> None:
        if self.fault is not None:
            raise self.fault

    def _replace(self, used: str) -> str:
        """The next refresh token. What `used` had replaced ends now, for its successor was used."""
        self.living.pop(self.living.get(used, ""), None)
        if self.strict:
            self.living.pop(used, None)
        new = f"refresh-{next(self._numbers)}"
        self.living[new] = used
        return new

    def _given(self, *, refresh_token: str) -> Given:
        return Given(
            access_token=f"access-{next(self._numbers)}", refresh_token=refresh_token, scopes=self.scopes,
            account=self.account, name=self.name,
        )  # fmt: skip


async def begin(connections: Connections, **words: Any) -> tuple[str, str]:
    """State and code, as the person brings them back."""
    asked: dict[str, Any] = {"scopes": ["calendar"], "redirect_uri": BACK, "tenant_id": "acme"}
    started = await connections.start("registrar", **asked | words)
    query = parse_qs(urlsplit(started.url).query)
    assert query["state"] == [started.state]
    return started.state, query["code"][0]


async def connect(connections: Connections, **words: Any) -> ConnectionFields:
    return await connections.finish(*await begin(connections, **words))


async def stored(store: Store, id: str) -> ConnectionFields:
    found = await store.tenant("acme").get(Connection, id)
    assert found is not None
    return found.doc


async def die_after_the_answer(connections: Connections, registrar: FakeOAuthProvider, id: str) -> None:
    """The provider has answered; the process that asked is gone before it kept anything."""
    registrar.pause = asyncio.Event()
    asking = asyncio.create_task(connections.token(id, rejected=await connections.token(id)))
    await registrar.answered.wait()
    for task in connections._refreshes.values():
        task.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    registrar.pause = None
