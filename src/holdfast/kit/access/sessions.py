"""Browser sessions: a random cookie, stored hashed, ended by time, by inactivity or by sign-out."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import Final

from holdfast.errors import ConflictError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.users import User
from holdfast.model import SERVICE_ONLY, Caller, Document, ProvidedId, Retention, document
from holdfast.store import Store, Transaction, Write, create, delete, patch

COOKIE: Final = "holdfast_session"
MAX_AGE_S: Final = 7 * 86_400.0
IDLE_S: Final = 12 * 3_600.0
SEEN_EVERY_S: Final = 60.0
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@document(
    "holdfast_sessions/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    immutable=["user_id", "generation", "began_at", "expires_at"],
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class Session(Document, rename="camel"):
    """A signed-in browser. The id is the cookie's hash; the cookie itself is not stored."""

    id: str
    tenant_id: str = NO_TENANT
    user_id: str
    generation: int
    began_at: datetime
    seen_at: datetime
    expires_at: datetime


class SessionCaller(Caller, frozen=True, kw_only=True):
    """A caller with a browser session. Changing requests must send `csrf` in the header X-CSRF-Token."""

    name: str
    session_id: str
    csrf: str


class Sessions:
    """Begins, verifies and ends sessions.

    Example:
        cookie = await sessions.begin(user)
        caller = await sessions.verify(cookie)
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store.privileged(), store.clock

    async def begin(self, user: User, transaction: Transaction | None = None) -> str:
        """Begin a session, in the caller's transaction if given; return its cookie, new at every sign-in."""
        if transaction is None:
            return await self._store.transact(lambda own: self.begin(user, own))
        cookie, write = self.write(user)
        transaction.write(write, patch(User, user.id, changes={"last_seen_at": self._clock.now()}))
        return cookie

    def write(self, user: User) -> tuple[str, Write]:
        """The cookie and the write of a new session, for the caller's own commit."""
        cookie, now = _text(secrets.token_bytes(32)), self._clock.now()
        session = Session(
            id=_hash(cookie), tenant_id=user.tenant_id, user_id=user.id, generation=user.generation,
            began_at=now, seen_at=now, expires_at=now + timedelta(seconds=MAX_AGE_S),
        )  # fmt: skip
        return cookie, create(session)

    async def verify(self, cookie: str, *, by_person: bool = True) -> SessionCaller | None:
        """The caller with this cookie; None once the session or the user's access has ended.

        Requests that a page makes by itself are not `by_person`: they do not keep an idle session
        alive.
        """
        if not _COOKIE.fullmatch(cookie):
            return None
        session = await self._store.get(Session, _hash(cookie))
        if session is None or not self._is_active(session.doc):
            return None
        user = await self._store.get(User, session.doc.user_id)
        if user is None or user.doc.disabled_at is not None or session.doc.generation != user.doc.generation:
            return None
        if by_person:
            await self._record_seen(session.doc)
        return SessionCaller(
            user_id=f"user:{user.doc.id}", roles={user.doc.tenant_id: user.doc.role}, name=user.doc.id,
            session_id=session.doc.id, csrf=csrf_of(cookie),
        )  # fmt: skip

    def _is_active(self, session: Session) -> bool:
        now = self._clock.now()
        return now < session.expires_at and now < session.seen_at + timedelta(seconds=IDLE_S)

    async def _record_seen(self, session: Session) -> None:
        """Coarse on purpose: at most one write a minute, however many requests come."""
        now = self._clock.now()
        if (now - session.seen_at).total_seconds() < SEEN_EVERY_S:
            return
        # A session that ended or was noted by another request meanwhile loses nothing.
        with contextlib.suppress(ConflictError, RetryLaterError):
            await self._store.commit(
                patch(Session, session.id, changes={"seen_at": now}),
                patch(User, session.user_id, changes={"last_seen_at": now}),
            )

    async def end(self, session_id: str, transaction: Transaction | None = None) -> None:
        """Sign out, in the caller's transaction if given; idempotent."""
        if transaction is None:
            return await self._store.transact(lambda own: self.end(session_id, own))
        transaction.write(delete(Session, session_id))


def csrf_of(cookie: str) -> str:
    """The CSRF token of a session: another site can have the cookie sent, but can't read this."""
    return _text(hmac.digest(cookie.encode(), b"holdfast csrf", "sha256"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
