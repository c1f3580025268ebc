"""Users: a name, a password hash, and one role in one tenant or on the platform."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast.errors import AlreadyExistsError, InvalidError, NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.passwords import hash_password, verify_password
from holdfast.model import HIDDEN, SERVICE_ONLY, Document, Index, Membership, ProvidedId, document
from holdfast.store import Query, Store, Transaction, create, put

SEARCHED_MAX: Final = 5_000
_SEARCHED_AT_ONCE: Final = 500
UserRole = Literal["viewer", "developer", "admin", "owner"]
_NAME: Final = r"[a-z0-9][a-z0-9._@+-]{0,99}"


@document(
    "holdfast_users/{id}",
    id=ProvidedId(pattern=_NAME),
    tenant="tenant_id",
    indexes=[Index("-created_at"), Index("-created_at", across="tenants")],
    immutable=["created_at", "created_by"],
    access=SERVICE_ONLY,
    membership=Membership(
        user="id", tenant="tenant_id", role="role", when={"disabled_at": None}, platform=True
    ),
)
class User(Document, rename="camel"):
    """A user; the id is the login name.

    A session or a one-time link counts while its `generation` is the user's, so that one write ends them
    all, whatever the clock says. Without a password (`password` empty) a user signs in by a link, and sets
    one there.
    """

    id: str
    tenant_id: str = NO_TENANT
    role: UserRole
    password: Annotated[str, HIDDEN] = ""
    created_at: datetime
    created_by: str = ""
    generation: int = 0
    disabled_at: datetime | None = None
    last_seen_at: datetime | None = None


@document("holdfast_set_up/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class Setup(Document, rename="camel"):
    """Whether there ever was a user (`at`); until then, the id of the newest first-run link.

    Of all who redeem that link at once, one finds `at` empty.
    """

    id: str = "users"
    tenant_id: str = NO_TENANT
    at: datetime | None = None
    link_id: str = ""


class Users:
    """Adds, finds and disables users and checks their passwords.

    Example:
        await users.add("ann", role="admin", password="correct horse battery")
        user = await users.verify("ann", "correct horse battery")
    """

    def __init__(self, store: Store) -> None:
        self._store = store.privileged() if store.tenant_id is None else store
        self._clock = store.clock

    async def any_exists(self) -> bool:
        """Whether a user exists or ever existed; otherwise the first-run link creates one."""
        return (await self.setup()).at is not None

    async def setup(self, transaction: Transaction | None = None) -> Setup:
        """The state of the first run."""
        stored = await (transaction or self._store).get(Setup, "users")
        return Setup() if stored is None else stored.doc

    async def add(
        self,
        name: str,
        *,
        role: UserRole,
        tenant_id: str = NO_TENANT,
        password: str | None = None,
        created_by: str = "",
    ) -> User:
        """Add a user; without a password they need a link to set one."""
        user = await self.build(
            name, role=role, tenant_id=tenant_id, password=password, created_by=created_by
        )
        await self._store.transact(lambda own: self.insert(user, own))
        return user

    async def insert(self, user: User, transaction: Transaction) -> None:
        """Insert a user that was built, in the caller's transaction; raises where the name is taken."""
        if await transaction.get(User, user.id) is not None:
            raise AlreadyExistsError(f"somebody is called {user.id!r} already; choose another name")
        transaction.write(create(user), put(Setup(at=user.created_at)))

    async def build(
        self, name: str, *, role: UserRole, tenant_id: str, password: str | None, created_by: str
    ) -> User:
        """A user that is not stored yet, for the caller's own commit."""
        now = self._clock.now()
        return User(
            id=check_name(name), tenant_id=tenant_id, role=role, created_at=now, created_by=created_by,
            password="" if password is None else await hash_password(password),
        )  # fmt: skip

    async def verify(self, name: str, password: str) -> User | None:
        """The user; None for a wrong password, an unknown name and a disabled user alike."""
        user = await self.find(normalize_name(name))
        stored = user.password if user is not None and user.disabled_at is None else ""
        return user if await verify_password(password, stored or None) else None

    async def get(self, name: str, transaction: Transaction | None = None) -> User:
        return msgspec.structs.replace(await self._get_or_raise(name, transaction), password="")

    async def _get_or_raise(self, name: str, transaction: Transaction | None) -> User:
        user = await self.find(normalize_name(name), transaction)
        if user is None:
            raise NotFoundError(f"nobody is called {name!r}")
        return user

    async def exists(self, name: str) -> bool:
        return await self.find(normalize_name(name)) is not None

    async def find(self, name: str, transaction: Transaction | None = None) -> User | None:
        """The user with this normalized name, with their password hash; None where there is none."""
        if not re.fullmatch(_NAME, name):
            return None
        user = await (transaction or self._store).get(User, name)
        return None if user is None else user.doc

    # These run in the caller's transaction if given, end all sessions and links and return the changed user.

    async def disable(self, name: str, transaction: Transaction | None = None) -> User:
        """Disable a user and end their sessions at once."""
        return await self._change(name, {"disabled_at": self._clock.now()}, transaction)

    async def enable(self, name: str, transaction: Transaction | None = None) -> User:
        return await self._change(name, {"disabled_at": None}, transaction)

    async def set_password(self, name: str, password: str) -> User:
        """Set a password; sessions with the old one end."""
        return await self.set_password_hash(name, await hash_password(password))

    async def set_password_hash(self, name: str, stored: str, transaction: Transaction | None = None) -> User:
        """Set a password by its hash, which is slow to compute, so not to be repeated at every retry."""
        return await self._change(name, {"password": stored}, transaction)

    async def end_sessions(self, name: str, transaction: Transaction | None = None) -> User:
        return await self._change(name, {}, transaction)

    async def _change(self, name: str, changes: dict[str, Any], transaction: Transaction | None) -> User:
        if transaction is None:
            return await self._store.transact(lambda own: self._change(name, changes, own))
        user = await self._get_or_raise(name, transaction)
        user = msgspec.structs.replace(user, **changes, generation=user.generation + 1)
        transaction.write(put(user))
        return msgspec.structs.replace(user, password="")

    async def page(self, *, limit: int = 50, cursor: str | None = None) -> tuple[Sequence[User], str | None]:
        """Users of the handle's tenant, or of all, newest first, without their password hashes."""
        page = await self._store.query(Query(User).order_by("-created_at").limit(limit).after(cursor))
        return [msgspec.structs.replace(doc, password="") for doc in page.docs], page.cursor

    async def search(
        self, part: str, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[User], str | None]:
        """Users with this part in their name, newest first; looks at 5,000 users, and the cursor goes on."""
        wanted, query, found, searched = (
            normalize_name(part),
            Query(User).order_by("-created_at"),
            list[User](),
            0,
        )
        while len(found) < limit and searched < SEARCHED_MAX:
            page = await self._store.query(query.limit(_SEARCHED_AT_ONCE).after(cursor))
            places = [place for place, user in enumerate(page.docs) if wanted in user.id]
            taken = places[: limit - len(found)]
            found += [page.docs[place] for place in taken]
            if len(taken) < len(places):
                # Read again up to the last that was taken, for the cursor after it.
                page = await self._store.query(query.limit(taken[-1] + 1).after(cursor))
            searched, cursor = searched + len(page.docs), page.cursor
            if cursor is None:
                break
        return [msgspec.structs.replace(user, password="") for user in found], cursor


def normalize_name(name: str) -> str:
    """The stored form of a name: people type capitals and spaces."""
    return name.strip().lower()


def check_name(name: str) -> str:
    """The stored form of a name; raises for an invalid one."""
    normalized = normalize_name(name)
    if not re.fullmatch(_NAME, normalized):
        raise InvalidError(
            "a name has 1 to 100 letters, digits and . _ @ + -, as in ann@acme.example", "name"
        )
    return normalized
