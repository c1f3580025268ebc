"""Browser sessions: a random cookie, stored hashed, ended by time, by inactivity or by sign-out."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.errors import ConflictError, ForbiddenError, RetryLaterError, UnverifiedError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import own_tenant
from holdfast.kit.access.identities import Identities
from holdfast.kit.access.oidc import Identity
from holdfast.kit.access.users import User
from holdfast.model import SERVICE_ONLY, Caller, Document, Index, ProvidedId, Retention, document
from holdfast.store import Query, Store, Transaction, Write, create, delete, patch

COOKIE: Final = "holdfast_session"
MAX_AGE_S: Final = 7 * 86_400.0
IDLE_S: Final = 12 * 3_600.0
SEEN_EVERY_S: Final = 60.0
ENDED_AT_ONCE_MAX: Final = 200
_COOKIE: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@document(
    "holdfast_sessions/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    immutable=["user_id", "generation", "identity", "began_at", "expires_at"],
    indexes=[Index("user_id", across="tenants")],
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class Session(Document, rename="camel"):
    """A signed-in browser. The id is the cookie's hash; the cookie itself is not stored.

    With an `identity`, somebody signed in with an issuer, and need not be a user; then `user_id` is their id
    as a caller, else the user's name.
    """

    id: str
    tenant_id: str = NO_TENANT
    user_id: str
    generation: int
    identity: Identity | None = None
    began_at: datetime
    seen_at: datetime
    expires_at: datetime


class SessionCaller(Caller, frozen=True, kw_only=True):
    """A caller with a browser session. Changing requests must send `csrf` in the header X-CSRF-Token."""

    name: str
    session_id: str
    csrf: str
    identity: bool = False  # signed in with an issuer, without a password here


class Sessions:
    """Begins, verifies and ends sessions.

    Example:
        cookie = await sessions.begin(user)
        caller = await sessions.verify(cookie)
    """

    def __init__(self, store: Store, identities: Identities | None = None) -> None:
        self._store, self._clock = store.privileged(), store.clock
        self._identities = identities

    async def begin(self, user: User, transaction: Transaction | None = None, *, rehashed: str = "") -> str:
        """Begin a session, in the caller's transaction if given; return its cookie, new at every sign-in.

        `rehashed` is a newer hash of the same password, stored unless the password was changed meanwhile.
        """
        if transaction is None:
            return await self._store.transact(lambda own: self.begin(user, own, rehashed=rehashed))
        cookie, write = self.write(user)
        changes: dict[str, Any] = {"last_seen_at": self._clock.now()}
        if rehashed:
            stored = await transaction.get(User, user.id)
            if stored is not None and stored.doc.password == user.password:
                changes["password"] = rehashed
        transaction.write(write, patch(User, user.id, changes=changes))
        return cookie

    def write(self, user: User) -> tuple[str, Write]:
        """The cookie and the write of a new session, for the caller's own commit."""
        return self._write(user.id, user.tenant_id, generation=user.generation)

    def write_identity(self, identity: Identity, caller: Caller, *, user: User | None) -> tuple[str, Write]:
        """The cookie and the write of a session with an issuer's identity, of a user here or of none."""
        return self._write(
            caller.user_id or "", own_tenant(caller), generation=user.generation if user else 0,
            identity=identity,
        )  # fmt: skip

    def _write(
        self, user_id: str, tenant_id: str, *, generation: int, identity: Identity | None = None
    ) -> tuple[str, Write]:
        cookie, now = _text(secrets.token_bytes(32)), self._clock.now()
        session = Session(
            id=_hash(cookie), tenant_id=tenant_id, user_id=user_id, generation=generation, identity=identity,
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
        found = await (self._of_user if session.doc.identity is None else self._of_identity)(session.doc)
        if found is None:
            return None
        caller, name = found
        if by_person:
            await self._record_seen(session.doc)
        return SessionCaller(
            user_id=caller.user_id, roles=caller.roles, email=caller.email, name=name,
            session_id=session.doc.id, csrf=csrf_of(cookie), identity=session.doc.identity is not None,
        )  # fmt: skip

    async def _of_user(self, session: Session) -> tuple[Caller, str] | None:
        user = await self._store.get(User, session.user_id)
        if user is None or user.doc.disabled_at is not None or session.generation != user.doc.generation:
            return None
        return Caller(user_id=f"user:{user.doc.id}", roles={user.doc.tenant_id: user.doc.role}), user.doc.id

    async def _of_identity(self, session: Session) -> tuple[Caller, str] | None:
        identity = session.identity
        assert identity is not None
        try:
            user = None if self._identities is None else await self._identities.user(identity)
            if self._identities is None or (user is not None and user.generation != session.generation):
                return None
            caller = await self._identities.caller(identity, user)
        except (UnverifiedError, ForbiddenError):
            # Its issuer was removed from the settings, or the user was disabled.
            return None
        return caller, identity.email or identity.name or identity.subject

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
            seen = [patch(Session, session.id, changes={"seen_at": now})]
            if session.identity is None:
                seen.append(patch(User, session.user_id, changes={"last_seen_at": now}))
            await self._store.commit(*seen)

    async def end(self, session_id: str, transaction: Transaction | None = None) -> None:
        """Sign out, in the caller's transaction if given; idempotent."""
        if transaction is None:
            return await self._store.transact(lambda own: self.end(session_id, own))
        transaction.write(delete(Session, session_id))

    async def end_all(self, user_id: str, transaction: Transaction) -> None:
        """End every session of somebody who signed in with an issuer."""
        found = await self._store.query(
            Query(Session).where("user_id", "==", user_id).limit(ENDED_AT_ONCE_MAX)
        )
        transaction.write(*(delete(Session, one.id) for one in found.docs))


def csrf_of(cookie: str) -> str:
    """The CSRF token of a session: another site can have the cookie sent, but can't read this."""
    return _text(hmac.digest(cookie.encode(), b"holdfast csrf", "sha256"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
