"""Pending consents: the state and PKCE verifier between redirect and callback; single use, ten minutes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from holdfast.errors import ConflictError, UnverifiedError
from holdfast.kit.connections.models import Consent
from holdfast.kit.vault import Secret, Vault
from holdfast.store import Snapshot, Store, create, delete

TTL_S: Final = 600.0
_UNUSABLE: Final = "this sign-in was finished, has expired or never existed; start again"


class ConsentRequest(msgspec.Struct, frozen=True):
    """The state and the PKCE challenge for the provider's URL."""

    state: str
    challenge: str


class Consents:
    """Stores pending consents until the person comes back.

    The state is stored hashed and the PKCE verifier sealed, so that nobody who reads the store can finish a
    sign-in.
    """

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store, self._clock = store, store.clock
        self._verifier = vault.field(Consent, "verifier")

    async def create(
        self, provider: str, *, tenant_id: str, scopes: Sequence[str], redirect_uri: str, bound_to: str
    ) -> ConsentRequest:
        """Store a new consent; `bound_to` is the session id of the browser that must bring the callback."""
        state, verifier, now = secrets.token_urlsafe(32), secrets.token_urlsafe(64), self._clock.now()
        id = _hash(state)
        consent = Consent(
            id=id, tenant_id=tenant_id, provider=provider, scopes=list(scopes), redirect_uri=redirect_uri,
            verifier=self._verifier.seal(verifier, id), bound_to=_hash(bound_to) if bound_to else "",
            created_at=now, expires_at=now + timedelta(seconds=TTL_S),
        )  # fmt: skip
        await self._store.commit(create(consent))
        return ConsentRequest(state, _challenge(verifier))

    async def redeem(self, state: str, *, bound_to: str) -> tuple[Consent, Secret]:
        """Redeem the consent of this state, with its verifier; of concurrent callers one succeeds."""
        stored = await self._store.get(Consent, _hash(state))
        consent = self._check_usable(stored, bound_to)
        assert stored is not None
        try:
            # Before the code is exchanged: providers end the whole grant when a code comes twice.
            await self._store.commit(delete(Consent, consent.id, expect=stored.unchanged))
        except ConflictError:
            raise UnverifiedError(_UNUSABLE) from None
        return consent, self._verifier.open(consent.verifier, consent.id)

    def _check_usable(self, stored: Snapshot[Consent] | None, bound_to: str) -> Consent:
        if stored is None or self._clock.now() >= stored.doc.expires_at:
            raise UnverifiedError(_UNUSABLE)
        if stored.doc.bound_to and not hmac.compare_digest(stored.doc.bound_to, _hash(bound_to)):
            raise UnverifiedError("this sign-in was started in another browser; start again here")
        return stored.doc


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _challenge(verifier: str) -> str:
    """The S256 challenge of RFC 7636."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
