"""A GitHub App: its JWT, the tokens of its installations, and the log of its webhook."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from holdfast.clock import Clock
from holdfast.net import HttpSession
from holdfast.providers.credentials import AccessToken, CachedTokens, rsa_key, sign_jwt
from holdfast.providers.github.client import GITHUB_URL, GithubClient, github_call
from holdfast.providers.github.delivery_log import GithubDeliveryLog
from holdfast.providers.github.faults import fault_of
from holdfast.providers.github.types import AppDescription, AppInstallation, InstallationToken
from holdfast.providers.rest import CallLimits, RestClient

# GitHub takes ten minutes at most, and refuses a JWT from the future.
JWT_S: Final = 540
SKEW_S: Final = 60
TOKEN_S_MAX: Final = 3_600.0
CLIENTS_MAX: Final = 1_000


class GithubApp:
    """Calls GitHub as the App itself; `installation(id)` calls it as one of its installations.

    Example:
        app = GithubApp(session, "12345", private_key, clock=clock)
        pull = await app.installation(42).get_pull("acme/api", 7)
    """

    def __init__(
        self,
        session: HttpSession,
        app_id: str,
        private_key: str,
        *,
        clock: Clock,
        base_url: str = GITHUB_URL,
        limits: CallLimits = CallLimits(),
    ) -> None:
        rsa_key(private_key, self._owner(app_id))  # refuses one that can't sign
        self._app_id, self._key, self._clock = app_id, private_key, clock
        self._session, self._url, self._limits = session, base_url, limits
        tokens = CachedTokens(self._sign, clock=clock, early_s=float(SKEW_S))
        self._rest = RestClient(
            session, base_url, fault_of=fault_of, clock=clock, tokens=tokens, limits=limits
        )
        self._clients: OrderedDict[int, GithubClient] = OrderedDict()

    @property
    def delivery_log(self) -> GithubDeliveryLog:
        return GithubDeliveryLog(self._rest)

    def installation(self, installation_id: int) -> GithubClient:
        """Return the client of an installation; it is kept, with its token."""
        client = self._clients.pop(installation_id, None)
        if client is None:
            tokens = CachedTokens(lambda: self._grant(installation_id), clock=self._clock)
            client = GithubClient(
                self._session, tokens, clock=self._clock, base_url=self._url, limits=self._limits
            )
        self._clients[installation_id] = client
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
        return client

    async def get_app(self) -> AppDescription:
        return await self._rest.fetch(github_call("app.get", "GET", "app"), AppDescription)

    async def get_installation(self, installation_id: int) -> AppInstallation:
        """Return an installation; NotFoundError when it was removed."""
        call = github_call("installations.get", "GET", "app", "installations", str(installation_id))
        return await self._rest.fetch(call, AppInstallation)

    async def _sign(self) -> AccessToken:
        issued = int(self._clock.now().timestamp()) - SKEW_S
        claims = {"iss": self._app_id, "iat": issued, "exp": issued + JWT_S}
        return AccessToken(
            sign_jwt(claims, self._key, owner=self._owner(self._app_id)), float(JWT_S - SKEW_S)
        )

    async def _grant(self, installation_id: int) -> AccessToken:
        call = github_call(
            "installations.token", "POST", "app", "installations", str(installation_id), "access_tokens",
            repeatable=True,
        )  # fmt: skip
        granted = await self._rest.fetch(call, InstallationToken)
        lasts_s = (granted.expires_at - self._clock.now()).total_seconds()
        return AccessToken(granted.token, min(lasts_s, TOKEN_S_MAX))

    @staticmethod
    def _owner(app_id: str) -> str:
        return f"the GitHub App {app_id}"
