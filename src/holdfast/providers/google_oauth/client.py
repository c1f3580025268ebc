"""Tokens for a service account, for itself or on behalf of a user of its domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.clock import Clock
from holdfast.errors import ForbiddenError, GoneError, HoldfastError, ReauthRequiredError
from holdfast.net import HttpSession
from holdfast.providers.credentials import AccessToken, CachedTokens, rsa_key
from holdfast.providers.google_oauth.assertion import sign_assertion
from holdfast.providers.google_oauth.types import ServiceAccountKey, TokenAnswer, TokenFault
from holdfast.providers.rest import CallLimits, RestClient, RestResponse, fault_by_status, form_call

GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_REMEDIES: Final = {
    "unauthorized_client": "allow its client id these scopes under domain-wide delegation",
    "access_denied": "an administrator's policy forbids it",
    "invalid_client": "the service account or OAuth client is disabled or deleted, or its secret is wrong",
}


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
        session: HttpSession,
        key: ServiceAccountKey,
        *,
        clock: Clock,
        limits: CallLimits = CallLimits(call_s=10.0),
    ) -> None:
        rsa_key(key.private_key, key.client_email)  # refuses one that can't sign
        self._key, self._clock = key, clock
        self._rest = RestClient(session, key.token_uri, fault_of=fault_of, clock=clock, limits=limits)

    def tokens(self, scopes: Sequence[str], *, subject: str = "") -> CachedTokens:
        """Return a source of tokens for these scopes, on behalf of `subject`; keep it, it holds the cache."""

        async def request() -> AccessToken:
            granted = await self.grant(scopes, subject=subject)
            return AccessToken(granted.access_token, granted.expires_in)

        return CachedTokens(request, clock=self._clock)

    async def grant(self, scopes: Sequence[str], *, subject: str = "") -> TokenAnswer:
        """Request a new token."""
        assertion = sign_assertion(self._key, scopes, subject=subject, now=self._clock.now())
        form = {"grant_type": GRANT, "assertion": assertion}
        call = form_call(f"a token for {subject or self._key.client_email}", form, repeatable=True)
        return await self._rest.fetch(call, TokenAnswer)
