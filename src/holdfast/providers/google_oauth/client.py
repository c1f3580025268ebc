"""Tokens for a service account, for itself or on behalf of a user of its domain."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec

from holdfast.clock import Clock
from holdfast.errors import ForbiddenError, GoneError, HoldfastError, ReauthRequiredError, RetryLaterError
from holdfast.providers.google_oauth.assertion import private_key, sign_assertion
from holdfast.providers.google_oauth.types import ServiceAccountKey, TokenAnswer, TokenFault
from holdfast.providers.rest import Call, CallLimits, RestClient, RestResponse, fault_by_status

GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# A token is renewed this long before it ends, and used this close to its end while renewing fails.
EARLY_S: Final = 300.0
LAST_S: Final = 10.0
_REMEDIES: Final = {
    "unauthorized_client": "allow its client id these scopes under domain-wide delegation",
    "access_denied": "an administrator's policy forbids it",
    "invalid_client": "the service account or OAuth client is disabled or deleted, or its secret is wrong",
}


def form_call(act: str, form: Mapping[str, str], *, repeatable: bool) -> Call:
    """Return a call that posts a form."""
    return Call(
        act, "POST", "", body=urlencode(form).encode(), content_type="application/x-www-form-urlencoded",
        repeatable=repeatable,
    )  # fmt: skip


def fault_of(act: str, response: RestResponse) -> HoldfastError:
    """Return what a refusal by the token endpoint means for the caller."""
    try:
        fault = msgspec.json.decode(response.body, type=TokenFault)
    except (msgspec.DecodeError, UnicodeDecodeError):
        fault = TokenFault()
    reason = f"{fault.error} ({fault.error_description})" if fault.error_description else fault.error
    if fault.error == "invalid_grant":
        return ReauthRequiredError(f"{act} was refused: {reason}")
    if fault.error == "invalid_token":
        return GoneError(f"{act} was refused: {reason}")
    if fault.error in _REMEDIES:
        return ForbiddenError(f"{act} was refused: {reason}; {_REMEDIES[fault.error]}")
    return fault_by_status(act, response, reason)


class ServiceAccount:
    """A service account that can act for users of a domain which delegated to it.

    Example:
        account = ServiceAccount(session, ServiceAccountKey.read(path), clock=clock)
        calendar = GoogleCalendar(session, account.tokens([SCOPE], subject="alice@hoge.jp"), clock=clock)
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        key: ServiceAccountKey,
        *,
        clock: Clock,
        limits: CallLimits = CallLimits(call_s=10.0),
    ) -> None:
        private_key(key)  # refuses one that can't sign
        self._key, self._clock = key, clock
        self._rest = RestClient(session, key.token_uri, fault_of=fault_of, clock=clock, limits=limits)

    def tokens(self, scopes: Sequence[str], *, subject: str = "") -> ServiceAccountTokens:
        """Return a source of tokens for these scopes, on behalf of `subject`; keep it, it holds the cache."""
        return ServiceAccountTokens(self, scopes=tuple(scopes), subject=subject, clock=self._clock)

    async def grant(self, scopes: Sequence[str], *, subject: str = "") -> TokenAnswer:
        """Request a new token."""
        assertion = sign_assertion(self._key, scopes, subject=subject, now=self._clock.now())
        form = {"grant_type": GRANT, "assertion": assertion}
        call = form_call(f"a token for {subject or self._key.client_email}", form, repeatable=True)
        return await self._rest.fetch(call, TokenAnswer)


class ServiceAccountTokens:
    """A token source that caches one token, renews it early, and shares one request among all who wait."""

    def __init__(
        self, account: ServiceAccount, *, scopes: tuple[str, ...], subject: str, clock: Clock
    ) -> None:
        self._account, self._scopes, self._subject, self._clock = account, scopes, subject, clock
        self._token, self._ends_at_s = "", 0.0
        self._renewing: asyncio.Task[str] | None = None

    async def __call__(self, *, rejected: str = "") -> str:
        if self._token == rejected:
            self._token = ""
        if self._lasts(EARLY_S):
            return self._token
        try:
            return await self._shared_renewal()
        except RetryLaterError:
            if self._lasts(LAST_S):
                return self._token
            raise

    def _lasts(self, seconds: float) -> bool:
        return bool(self._token) and self._clock.monotonic() + seconds < self._ends_at_s

    async def _shared_renewal(self) -> str:
        if self._renewing is None:
            self._renewing = asyncio.ensure_future(self._renew())
            self._renewing.add_done_callback(self._ended)
        # A caller that is cancelled must not cancel the request of the others.
        return await asyncio.shield(self._renewing)

    async def _renew(self) -> str:
        asked_at_s = self._clock.monotonic()
        response = await self._account.grant(self._scopes, subject=self._subject)
        self._token = response.access_token
        self._ends_at_s = asked_at_s + response.expires_in
        return self._token

    def _ended(self, task: asyncio.Task[str]) -> None:
        self._renewing = None
        if not task.cancelled():
            # Retrieved here, or a failure nobody waits for any more would be logged as never retrieved.
            task.exception()
