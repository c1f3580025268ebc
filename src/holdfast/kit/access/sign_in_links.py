"""One-time sign-in links: for the first user, for invitations and for forgotten passwords."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from holdfast.errors import InvalidError, UnverifiedError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.passwords import check_password, hash_password
from holdfast.kit.access.sessions import Sessions
from holdfast.kit.access.users import Setup, User, Users
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, Retention, document
from holdfast.store import Store, Transaction, Write, create, put

FIRST: Final = ""
TTL_S: Final = 3_600.0
ATTEMPTS: Final = 100
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_UNUSABLE: Final = (
    "this link was used, has expired or never existed; create another: holdfast users link NAME"
)


@document(
    "holdfast_sign_in_links/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    immutable=["user_id", "generation", "created_at", "expires_at"],
    retention=Retention("expires_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class SignInLink(Document, rename="camel"):
    """A link, by the hash of its code. `user_id` is whom it signs in; empty for the first user.

    It counts while its `generation` is the user's; that of the first user, while no newer one was made.
    """

    id: str
    tenant_id: str = NO_TENANT
    user_id: str
    generation: int = 0
    created_at: datetime
    created_by: str = ""
    expires_at: datetime
    used_at: datetime | None = None


Redeem = Callable[[Transaction], Awaitable[tuple[User, str]]]
# Commits the use of a link for a person, with what belongs to it, such as its event on the audit trail.
CommitFor = Callable[[User, Redeem], Awaitable[tuple[User, str]]]


class SignInLinks:
    """Creates codes and redeems each once.

    Example:
        code = await links.create("ann")
        user, cookie = await links.redeem(code, name="ann", password="correct horse battery")
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store.privileged(), store.clock
        self._users, self._sessions = Users(store), Sessions(store)

    async def first(self, transaction: Transaction | None = None) -> str | None:
        """A code for the first user, in the caller's transaction if given; it ends those of earlier starts.

        None where there has been a user already.
        """
        if transaction is None:
            return await self._store.transact(self.first)
        setup = await self._users.setup(transaction)
        if setup.at is not None:
            return None
        code, write = self._write(FIRST, NO_TENANT, created_by="")
        setup.link_id = _hash(code)
        transaction.write(write, put(setup))
        return code

    async def create(self, name: str, transaction: Transaction | None = None, *, created_by: str = "") -> str:
        """A code, valid for an hour, to set a password with; in the caller's transaction if given."""
        if transaction is None:
            return await self._store.transact(lambda own: self.create(name, own, created_by=created_by))
        user = await self._users.get(name, transaction)
        if user.disabled_at is not None:
            raise InvalidError(f"{user.id} is disabled; enable them first", "name")
        code, write = self.write(user, created_by=created_by)
        transaction.write(write)
        return code

    def write(self, user: User, *, created_by: str) -> tuple[str, Write]:
        """The code and its write for a user who is added in the caller's own commit."""
        return self._write(user.id, user.tenant_id, generation=user.generation, created_by=created_by)

    def _write(
        self, user_id: str, tenant_id: str, *, generation: int = 0, created_by: str
    ) -> tuple[str, Write]:
        code, now = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("="), self._clock.now()
        link = SignInLink(
            id=_hash(code), tenant_id=tenant_id, user_id=user_id, generation=generation, created_at=now,
            created_by=created_by, expires_at=now + timedelta(seconds=TTL_S),
        )  # fmt: skip
        return code, create(link)

    async def check(self, code: str) -> str:
        """The user id that the link signs in, empty for the first user; raises for an unusable link."""
        if not _CODE.fullmatch(code):
            raise UnverifiedError(_UNUSABLE)
        return (await self._store.transact(lambda tx: self._usable(tx, code)))[0].user_id

    async def _usable(self, tx: Transaction, code: str) -> tuple[SignInLink, User | None]:
        """The link and the user it signs in, both as they are now; raises for an unusable link."""
        stored = await tx.get(SignInLink, _hash(code))
        if stored is None or stored.doc.used_at is not None or self._clock.now() >= stored.doc.expires_at:
            raise UnverifiedError(_UNUSABLE)
        link = stored.doc
        if link.user_id == FIRST:
            setup = await self._users.setup(tx)
            user, current = None, setup.at is None and setup.link_id == link.id
        else:
            user = await self._users.find(link.user_id, tx)
            current = user is not None and user.disabled_at is None and user.generation == link.generation
        if not current:
            raise UnverifiedError(_UNUSABLE)
        return link, user

    async def redeem(
        self, code: str, *, name: str, password: str, commit: CommitFor | None = None
    ) -> tuple[User, str]:
        """Set the password and begin a session; return user and cookie. Of concurrent callers one succeeds.

        Spending the link, keeping the person and beginning the session is one commit: the store's own, or
        what `commit` makes of the act for that person.
        """
        wanted = await self.check(code)
        check_password(password)
        if wanted == FIRST:
            user = await self._users.build(
                name, role="owner", tenant_id=NO_TENANT, password=password, created_by="first link"
            )
        else:
            user, hashed = await self._users.get(wanted), await hash_password(password)

        async def act(tx: Transaction) -> tuple[User, str]:
            return await (
                self._create_first(tx, code, user)
                if wanted == FIRST
                else self._set_password(tx, code, hashed)
            )

        if commit is not None:
            return await commit(user, act)
        return await self._store.transact(act, attempts=ATTEMPTS)

    async def _create_first(self, tx: Transaction, code: str, user: User) -> tuple[User, str]:
        await self._mark_used(tx, code)
        cookie, session_write = self._sessions.write(user)
        tx.write(create(user), put(Setup(at=user.created_at)), session_write)
        return user, cookie

    async def _set_password(self, tx: Transaction, code: str, password_hash: str) -> tuple[User, str]:
        user = await self._mark_used(tx, code)
        assert user is not None
        user.password, user.generation = password_hash, user.generation + 1
        cookie, session_write = self._sessions.write(user)
        tx.write(put(user), session_write)
        return user, cookie

    async def _mark_used(self, tx: Transaction, code: str) -> User | None:
        link, user = await self._usable(tx, code)
        link.used_at = self._clock.now()
        tx.write(put(link))
        return user


def link_to(kind: str, code: str, address: str) -> str:
    """The URL of a link: `first` for the first user, `link` for a known one."""
    return f"{address.rstrip('/')}/sign-in/{kind}?code={code}"


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
