"""Sessions of a service's visitors: people whom the service itself knows, by a signed and rolling cookie.

    cookie = await visitors.begin("dang", tx)     # in the commit that signs them in
    visitor = await visitors.verify(cookie)       # later, in any process

Visitors are no users of the platform: they have no role, and only the service's own routes know them.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from holdfast.errors import ConflictError, RetryLaterError, TooLargeError
from holdfast.kit import NO_TENANT
from holdfast.kit.vault import DerivedKey, Vault
from holdfast.model import SERVICE_ONLY, Caller, Document, ProvidedId, Retention, document
from holdfast.store import Store, Transaction, create, delete, patch

VISIT_S: Final = 24 * 3_600.0
# At most one write a minute, however many requests come.
RENEW_EVERY_S: Final = 60.0
VISITOR_KEY: Final = DerivedKey(purpose="visitor-sessions", signs="cookies of visitors", lasts_s=VISIT_S)
# Browsers keep 4,096 bytes of a cookie, with its name and attributes.
PREFERENCES_BYTES_MAX: Final = 3_500
_COOKIE: Final = re.compile(r"([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{43})")


@document(
    "holdfast_visitor_sessions/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    immutable=["service", "name", "began_at"],
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class VisitorSession(Document, rename="camel"):
    """A visitor's browser. The id is a hash of the cookie; the cookie itself is not stored."""

    id: str
    tenant_id: str = NO_TENANT
    service: str
    name: str
    began_at: datetime
    expires_at: datetime


class VisitorCaller(Caller, frozen=True, kw_only=True):
    """A visitor of one service, by the name under which that service knows them."""

    name: str
    session_id: str


class CurrentVisitor:
    """The visitor of one request, and the cookie to send back: None leaves it as it is, "" removes it.

    `preferences` are a short text that the browser keeps for a year, signed in or not; assigning it sets it.
    """

    def __init__(self, caller: VisitorCaller | None = None, *, cookie: str | None = None) -> None:
        self.caller, self.cookie = caller, cookie
        self._preferences = ""

    @property
    def preferences(self) -> str:
        return self._preferences

    @preferences.setter
    def preferences(self, text: str) -> None:
        if len(quote(text)) > PREFERENCES_BYTES_MAX:
            raise TooLargeError(f"preferences take at most {PREFERENCES_BYTES_MAX:,} bytes; shorten them")
        self._preferences = text

    @property
    def session_id(self) -> str:
        """The session that this request came with; empty without one."""
        return self.caller.session_id if self.caller else ""


class VisitorSessions:
    """Begins, verifies, renews and ends the visitor sessions of one service.

    Example: `visitors = VisitorSessions(store, vault, service="hackernews")`
    """

    def __init__(self, store: Store, vault: Vault, *, service: str) -> None:
        self._store, self._clock, self._service = store.privileged(), store.clock, service
        self._keys: Sequence[bytes] = tuple(vault.secrets(VISITOR_KEY).values())

    async def begin(self, name: str, transaction: Transaction | None = None, *, replaces: str = "") -> str:
        """Begin a session and end the one it `replaces`, in the transaction if given; return its cookie."""
        if transaction is None:
            return await self._store.transact(lambda own: self.begin(name, own, replaces=replaces))
        token, now = _text(secrets.token_bytes(32)), self._clock.now()
        session = VisitorSession(
            id=_hash(token), service=self._service, name=name, began_at=now,
            expires_at=now + timedelta(seconds=VISIT_S),
        )  # fmt: skip
        transaction.write(create(session))
        if replaces:
            transaction.write(delete(VisitorSession, replaces))
        return self._cookie(token)

    async def verify(self, cookie: str) -> CurrentVisitor:
        """The visitor of this cookie, renewed; a forged, expired or ended one gives nobody and removes it."""
        token = self._token_of(cookie)
        session = await self._store.get(VisitorSession, _hash(token)) if token else None
        now = self._clock.now()
        if session is None or session.doc.service != self._service or now >= session.doc.expires_at:
            return CurrentVisitor(cookie="")
        found = session.doc
        caller = VisitorCaller(
            user_id=f"visitor:{self._service}:{found.name}",
            name=found.name,
            session_id=found.id,
            visitor=True,
        )
        # Signed by the current key: with each renewal, an older key is needed by fewer.
        return CurrentVisitor(caller, cookie=self._cookie(token) if await self._renew(found) else None)

    async def _renew(self, session: VisitorSession) -> bool:
        until = self._clock.now() + timedelta(seconds=VISIT_S)
        if (until - session.expires_at).total_seconds() < RENEW_EVERY_S:
            return False
        # A session that ended meanwhile stays ended: a patch creates nothing.
        with contextlib.suppress(ConflictError, RetryLaterError):
            await self._store.commit(patch(VisitorSession, session.id, changes={"expires_at": until}))
            return True
        return False

    async def end(self, session_id: str, transaction: Transaction | None = None) -> None:
        """Sign out, in the caller's transaction if given; idempotent."""
        if transaction is None:
            return await self._store.transact(lambda own: self.end(session_id, own))
        transaction.write(delete(VisitorSession, session_id))

    def _token_of(self, cookie: str) -> str:
        """The token of a cookie with a valid signature; empty for any other, without a read of the store."""
        parts = _COOKIE.fullmatch(cookie)
        if parts is None:
            return ""
        token, signature = parts.groups()
        signed = [self._sign(key, token) for key in self._keys]
        return token if any(hmac.compare_digest(one, signature) for one in signed) else ""

    def _cookie(self, token: str) -> str:
        return f"{token}.{self._sign(self._keys[0], token)}"

    def _sign(self, key: bytes, token: str) -> str:
        return _text(hmac.digest(key, f"{self._service}\0{token}".encode(), "sha256"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
