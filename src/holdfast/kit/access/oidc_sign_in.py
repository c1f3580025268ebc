"""Sign-in with an issuer: authorization code with PKCE, state and nonce, each sign-in finished once.

    url = await sign_in.start("https://id.example", after="/console", browser=cookie)
    # the person comes back with a state and a code
    identity, after = await sign_in.finish(state, code, browser=cookie)

What is pending is a `Consent`: its state is stored hashed, its verifier sealed, and only the browser that
started it can finish it. The nonce is derived from the state, so it need not be stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from urllib.parse import urlencode

import msgspec

from holdfast.config import Issuer
from holdfast.errors import NotFoundError, UnverifiedError
from holdfast.kit.access.oidc import Identity, Oidc
from holdfast.kit.connections.consents import Consents
from holdfast.kit.connections.models import Consent
from holdfast.kit.vault import Vault
from holdfast.store import Store

CALLBACK: Final = "/sign-in/oidc/callback"
SCOPES: Final = ("openid", "email", "profile")
# No service can have it: a service's purposes begin with its name.
PURPOSE: Final = "holdfast:sign-in"


class CodeExchange(msgspec.Struct, frozen=True, kw_only=True):
    """What an issuer's token endpoint is asked with."""

    code: str
    verifier: str
    redirect_uri: str


class IssuerClient(Protocol):
    """The two endpoints of an issuer that a sign-in needs."""

    async def authorization_url(self) -> str:
        """Where people are sent; `RetryLaterError` while the issuer can't be reached."""
        ...

    async def exchange(self, exchange: CodeExchange) -> str:
        """The identity token for a code; `UnverifiedError` where the issuer refuses it."""
        ...


class OidcSignIn:
    """Sends people to an issuer and takes them back, in any process of the same store."""

    def __init__(
        self,
        store: Store,
        vault: Vault,
        *,
        oidc: Oidc,
        issuers: Sequence[Issuer],
        client_of: Callable[[Issuer], IssuerClient],
        public_url: str,
    ) -> None:
        self._consents, self._oidc, self._clock = Consents(store.privileged(), vault), oidc, store.clock
        self._redirect_uri = f"{public_url.rstrip('/')}{CALLBACK}"
        # Without its own address this server could not be called back.
        self.issuers = {one.issuer: one for one in issuers if one.client_id and public_url}
        self._clients = {name: client_of(one) for name, one in self.issuers.items()}

    async def start(self, issuer: str, *, after: str, browser: str) -> str:
        """The URL to send the person to; `browser` is a secret of theirs, `after` where to go on then."""
        chosen = self.issuers.get(issuer)
        if chosen is None:
            raise NotFoundError("nobody signs in with this issuer here; go back and choose another way")
        url, now = await self._clients[issuer].authorization_url(), self._clock.now()
        asked = Consent(
            id="", provider=issuer, scopes=list(SCOPES), redirect_uri=self._redirect_uri, purpose=PURPOSE,
            return_path=after, created_at=now, expires_at=now,
        )  # fmt: skip
        request = await self._consents.start(asked, bound_to=browser)
        query = {
            "response_type": "code", "client_id": chosen.client_id, "redirect_uri": self._redirect_uri,
            "scope": " ".join(SCOPES), "state": request.state, "nonce": _nonce(request.state),
            "code_challenge": request.challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"

    async def finish(self, state: str, code: str, *, browser: str) -> tuple[Identity, str]:
        """Who came back, and where they go on; of many with one state, one succeeds."""
        consent, verifier = await self._consents.redeem(state, bound_to=browser)
        if consent.purpose != PURPOSE or consent.provider not in self.issuers:
            raise UnverifiedError("this sign-in is of another kind, or its issuer is no longer configured")
        exchange = CodeExchange(code=code, verifier=verifier.reveal(), redirect_uri=consent.redirect_uri)
        token = await self._clients[consent.provider].exchange(exchange)
        identity = await self._oidc.verify_sign_in(token, issuer=consent.provider, nonce=_nonce(state))
        return identity, consent.return_path


def _nonce(state: str) -> str:
    return hashlib.sha256(b"nonce:" + state.encode(errors="replace")).hexdigest()
