"""Links that let a person in once: the first one there is, or one who is invited or forgot the password."""

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
LASTS_S: Final = 3_600.0
ATTEMPTS: Final = 100
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_SPENT: Final = "this link was used, has ended or was never given; make another: holdfast users link NAME"


@document(
    "holdfast_sign_in_links/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    immutable=["user_id", "created_at", "expires_at"],
    retention=Retention("expires_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class SignInLink(Document, rename="camel"):
    """One link, by the hash of its code. `user_id` is who it lets in; empty is whoever comes first."""

    id: str
    tenant_id: str = NO_TENANT
    user_id: str
    created_at: datetime
    created_by: str = ""
    expires_at: datetime
    used_at: datetime | None = None


# What lands with the use of a link, such as its entry on the audit trail.
Also = Callable[[Transaction, User], Awaitable[None]]


class SignInLinks:
    """Makes links' codes and lets each be used once.

    Example:
        code = await links.create("ann")
        user, cookie = await links.redeem(code, name="ann", password="correct horse battery")
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store.privileged(), store.clock
        self._users, self._sessions = Users(store), Sessions(store)

    async def first(self) -> str | None:
        """A code for the first person; None where there has been one already."""
        if await self._users.any_exists():
            return None
        code, write = self._write(FIRST, NO_TENANT, "")
        await self._store.commit(write)
        return code

    async def create(self, name: str, transaction: Transaction | None = None, *, created_by: str = "") -> str:
        """A code with which this person sets a new password, kept in the caller's transaction, if given; it
        ends after an hour."""
        if transaction is None:
            return await self._store.transact(lambda own: self.create(name, own, created_by=created_by))
        user = await self._users.get(name, transaction)
        if user.disabled_at is not None:
            raise InvalidError(f"{user.id} is disabled; enable them first", "name")
        code, write = self.write(user, created_by=created_by)
        transaction.write(write)
        return code

    def write(self, user: User, *, created_by: str) -> tuple[str, Write]:
        """The same for somebody who is added in the caller's own commit."""
        return self._write(user.id, user.tenant_id, created_by)

    def _write(self, user_id: str, tenant_id: str, created_by: str) -> tuple[str, Write]:
        code, now = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("="), self._clock.now()
        link = SignInLink(
            id=_hash(code), tenant_id=tenant_id, user_id=user_id, created_at=now, created_by=created_by,
            expires_at=now + timedelta(seconds=LASTS_S),
        )  # fmt: skip
        return code, create(link)

    async def check(self, code: str) -> str:
        """Whom the link lets in, empty for the first person; raises once it lets nobody in."""
        if not _CODE.fullmatch(code):
            raise UnverifiedError(_SPENT)
        found = await self._store.get(SignInLink, _hash(code))
        link = self._good(found.doc if found else None)
        if link.user_id == FIRST and await self._users.any_exists():
            raise UnverifiedError(_SPENT)
        return link.user_id

    def _good(self, link: SignInLink | None) -> SignInLink:
        if link is None or link.used_at is not None or self._clock.now() >= link.expires_at:
            raise UnverifiedError(_SPENT)
        return link

    async def redeem(
        self, code: str, *, name: str, password: str, also: Also | None = None
    ) -> tuple[User, str]:
        """Set the password and begin a session: person and cookie. Of many at once, one gets in.

        Spending the link, keeping the person and beginning the session is one commit, with what `also` adds.
        """
        wanted = await self.check(code)
        check_password(password)
        if wanted == FIRST:
            made = await self._users.build(
                name, role="owner", tenant_id=NO_TENANT, password=password, created_by="first link"
            )
            return await self._in_one(lambda tx: self._first(tx, code, made), also)
        kept = await hash_password(password)
        return await self._in_one(lambda tx: self._again(tx, code, kept), also)

    async def _in_one(
        self, act: Callable[[Transaction], Awaitable[tuple[User, str]]], also: Also | None
    ) -> tuple[User, str]:
        async def whole(tx: Transaction) -> tuple[User, str]:
            user, cookie = await act(tx)
            if also is not None:
                await also(tx, user)
            return user, cookie

        return await self._store.transact(whole, attempts=ATTEMPTS)

    async def _first(self, tx: Transaction, code: str, user: User) -> tuple[User, str]:
        await self._spend(tx, code)
        if await tx.get(Setup, "users") is not None:
            raise UnverifiedError(_SPENT)
        cookie, began = self._sessions.write(user)
        tx.write(create(user), put(Setup(at=user.created_at)), began)
        return user, cookie

    async def _again(self, tx: Transaction, code: str, kept: str) -> tuple[User, str]:
        link = await self._spend(tx, code)
        found = await tx.get(User, link.user_id)
        if found is None or found.doc.disabled_at is not None:
            raise UnverifiedError(_SPENT)
        user = found.doc
        user.password, user.generation = kept, user.generation + 1
        cookie, began = self._sessions.write(user)
        tx.write(put(user), began)
        return user, cookie

    async def _spend(self, tx: Transaction, code: str) -> SignInLink:
        found = await tx.get(SignInLink, _hash(code))
        link = self._good(found.doc if found else None)
        link.used_at = self._clock.now()
        tx.write(put(link))
        return link


def link_to(kind: str, code: str, address: str) -> str:
    """A link as a person opens it: `first` for the first person, `link` for one who is known."""
    return f"{address.rstrip('/')}/sign-in/{kind}?code={code}"


def _hash(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
