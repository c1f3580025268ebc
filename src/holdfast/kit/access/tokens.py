"""API tokens: shown once, stored hashed, scoped, expiring, revocable."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from holdfast.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.models import ApiToken, TokenRole
from holdfast.kit.access.scopes import check_scopes
from holdfast.model import Caller
from holdfast.store import Query, Store, Transaction, Write, create, patch

PREFIX: Final = "hf_"
ID_BYTES: Final = 10
SECRET_BYTES: Final = 30
USED_EVERY_S: Final = 60.0
EXPIRES_S_MAX: Final = 10 * 366 * 86_400.0
NAME_CHARACTERS_MAX: Final = 100
_TOKEN: Final = re.compile(rf"{PREFIX}([a-z2-7]{{16}})[a-z2-7]{{48}}")
_NO_HASH: Final = hashlib.sha256(b"").hexdigest()


class TokenCaller(Caller, frozen=True, kw_only=True):
    """A caller with an API token: its role in its tenant, limited by its scopes."""

    token_id: str
    scopes: tuple[str, ...]


class ApiTokens:
    """Creates, verifies, lists and revokes tokens.

    Example:
        token = await tokens.create("deploys", role="admin", tenant_id="acme", scopes=["channels:*"])
        caller = await tokens.verify(token)
    """

    def __init__(self, store: Store) -> None:
        self._store = store.privileged() if store.tenant_id is None else store
        self._clock = store.clock

    async def create(
        self,
        name: str,
        *,
        role: TokenRole,
        tenant_id: str = NO_TENANT,
        scopes: Iterable[str] = ("*",),
        expires_in_s: float | None = None,
        created_by: str = "",
    ) -> str:
        """Create a token and return it. Only its hash is stored, so it can't be shown again."""
        token, write = self.write(
            name, role=role, tenant_id=tenant_id, scopes=scopes, expires_in_s=expires_in_s,
            created_by=created_by,
        )  # fmt: skip
        await self._store.commit(write)
        return token

    def write(
        self,
        name: str,
        *,
        role: TokenRole,
        tenant_id: str = NO_TENANT,
        scopes: Iterable[str] = ("*",),
        expires_in_s: float | None = None,
        created_by: str = "",
    ) -> tuple[str, Write]:
        """The token and its write, for the caller's own commit."""
        if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
            raise InvalidError(f"a token's name has 1 to {NAME_CHARACTERS_MAX} characters", "name")
        if expires_in_s is not None and not 0 < expires_in_s <= EXPIRES_S_MAX:
            raise InvalidError(
                f"a token expires within {EXPIRES_S_MAX:,.0f} s, and in the future", "expires_in_s"
            )
        if role == "service" and self._store.tenant_id is not None:
            raise ForbiddenError("a tenant can't create service tokens")
        id = _text(ID_BYTES)
        token = f"{PREFIX}{id}{_text(SECRET_BYTES)}"
        now = self._clock.now()
        expires_at = None if expires_in_s is None else now + timedelta(seconds=expires_in_s)
        return token, create(ApiToken(
            id=id, tenant_id=tenant_id, name=name, role=role, scopes=check_scopes(scopes), hash=_hash(token),
            created_at=now, created_by=created_by, expires_at=expires_at, ended_at=expires_at,
        ))  # fmt: skip

    async def verify(self, token: str) -> TokenCaller | None:
        """The caller with this token; None for one that is unknown, expired or revoked."""
        match = _TOKEN.fullmatch(token)
        stored = await self._store.get(ApiToken, match.group(1)) if match else None
        # The same work for an unknown id, so that timing reveals nothing.
        same = hmac.compare_digest(_hash(token), stored.doc.hash if stored else _NO_HASH)
        if stored is None or not same or not self._is_active(stored.doc):
            return None
        await self._record_use(stored.doc)
        doc = stored.doc
        roles = {} if doc.role == "service" else {doc.tenant_id: doc.role}
        return TokenCaller(
            user_id=f"token:{doc.id}", roles=roles, service=doc.role == "service", token_id=doc.id,
            scopes=tuple(doc.scopes),
        )  # fmt: skip

    def _is_active(self, doc: ApiToken) -> bool:
        return doc.revoked_at is None and (doc.expires_at is None or self._clock.now() < doc.expires_at)

    async def _record_use(self, doc: ApiToken) -> None:
        """Coarse on purpose: at most one write a minute, however often a token is used."""
        now = self._clock.now()
        if doc.last_used_at is not None and (now - doc.last_used_at).total_seconds() < USED_EVERY_S:
            return
        with contextlib.suppress(ConflictError, RetryLaterError):
            await self._store.commit(patch(ApiToken, doc.id, changes={"last_used_at": now}))

    async def revoke(self, id: str, transaction: Transaction | None = None) -> None:
        """Revoke a token at once, in the caller's transaction if given; idempotent."""
        if transaction is None:
            return await self._store.transact(lambda own: self.revoke(id, own))
        stored = await transaction.get(ApiToken, id)
        if stored is None:
            raise NotFoundError(f"no token {id!r}")
        if stored.doc.revoked_at is None:
            now = self._clock.now()
            transaction.write(patch(ApiToken, id, changes={"revoked_at": now, "ended_at": now}))

    async def page(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[Sequence[ApiToken], str | None]:
        """Tokens of the handle's tenant, or of all, newest first, without their hashes."""
        page = await self._store.query(Query(ApiToken).order_by("-created_at").limit(limit).after(cursor))
        return [msgspec.structs.replace(doc, hash="") for doc in page.docs], page.cursor


def _text(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().lower()


def _hash(token: str) -> str:
    # A fast hash is enough: 240 random bits can't be guessed; slow hashing is for passwords.
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
