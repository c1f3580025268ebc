"""Pending consents: the state and PKCE verifier between redirect and callback; single use, ten minutes.

A start link is a consent without a verifier; opening it, once, replaces it by one bound to the browser.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.errors import ConflictError, InvalidError, UnverifiedError
from holdfast.kit.connections.models import Consent
from holdfast.kit.vault import Secret, Vault
from holdfast.store import Snapshot, Store, Transaction, Write, create, delete

TTL_S: Final = 600.0
PAYLOAD_BYTES_MAX: Final = 4_096
_UNUSABLE: Final = "this sign-in was finished, has expired or never existed; start again"


class ConsentRequest(msgspec.Struct, frozen=True):
    """The state and the PKCE challenge for the provider's URL, and the consent they belong to."""

    state: str
    challenge: str
    consent: Consent


class StartLink(msgspec.Struct, frozen=True):
    """The token of a link that starts a sign-in once; it is valid from the commit of `write`."""

    token: str
    expires_at: datetime
    write: Write


class Consents:
    """Stores pending consents until the person comes back.

    State and token are stored hashed and the PKCE verifier sealed, so that nobody who reads the store can
    finish a sign-in.
    """

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store, self._clock = store, store.clock
        self._verifier = vault.field(Consent, "verifier")

    def link(self, asked: Consent) -> StartLink:
        """Return a link to a sign-in as `asked`, whose id and times are set here."""
        token = secrets.token_urlsafe(32)
        consent = self._renewed(asked, token)
        return StartLink(token, consent.expires_at, create(consent))

    async def start(self, asked: Consent, *, bound_to: str) -> ConsentRequest:
        """Store a new consent; `bound_to` is the session id of the browser that must bring the callback."""
        request = self._request(asked, bound_to)
        await self._store.commit(create(request.consent))
        return request

    async def open(self, token: str, *, bound_to: str) -> ConsentRequest:
        """Replace a start link by a consent of the browser that opened it; of many at once, one succeeds."""

        async def act(tx: Transaction) -> ConsentRequest:
            link = self._check_usable(await tx.get(Consent, _hash(token)), "", is_link=True)
            request = self._request(link, bound_to)
            tx.write(delete(Consent, link.id), create(request.consent))
            return request

        return await self._store.transact(act)

    async def redeem(self, state: str, *, bound_to: str) -> tuple[Consent, Secret]:
        """Redeem the consent of this state, with its verifier; of concurrent callers one succeeds."""
        stored = await self._store.get(Consent, _hash(state))
        consent = self._check_usable(stored, bound_to, is_link=False)
        assert stored is not None
        try:
            # Before the code is exchanged: providers end the whole grant when a code comes twice.
            await self._store.commit(delete(Consent, consent.id, expect=stored.unchanged))
        except ConflictError:
            raise UnverifiedError(_UNUSABLE) from None
        return consent, self._verifier.open(consent.verifier, consent.id)

    def _request(self, asked: Consent, bound_to: str) -> ConsentRequest:
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        consent = self._renewed(asked, state)
        sealed = self._verifier.seal(verifier, consent.id)
        bound = _hash(bound_to) if bound_to else ""
        consent = msgspec.structs.replace(consent, verifier=sealed, bound_to=bound)
        return ConsentRequest(state, _challenge(verifier), consent)

    def _renewed(self, asked: Consent, secret: str) -> Consent:
        if len(msgspec.json.encode(asked.payload)) > PAYLOAD_BYTES_MAX:
            raise InvalidError(f"a consent's payload has at most {PAYLOAD_BYTES_MAX:,} bytes", "payload")
        now = self._clock.now()
        return msgspec.structs.replace(
            asked, id=_hash(secret), created_at=now, expires_at=now + timedelta(seconds=TTL_S)
        )

    def _check_usable(self, stored: Snapshot[Consent] | None, bound_to: str, *, is_link: bool) -> Consent:
        if stored is None or self._clock.now() >= stored.doc.expires_at:
            raise UnverifiedError(_UNUSABLE)
        if is_link == bool(stored.doc.verifier):
            raise UnverifiedError(_UNUSABLE)
        if stored.doc.bound_to and not hmac.compare_digest(stored.doc.bound_to, _hash(bound_to)):
            raise UnverifiedError("this sign-in was started in another browser; start again here")
        return stored.doc


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _challenge(verifier: str) -> str:
    """The S256 challenge of RFC 7636."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
