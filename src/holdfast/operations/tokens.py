"""API tokens: create, list, revoke. A token itself is shown once, to whoever creates it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.errors import ForbiddenError, NotFoundError
from holdfast.kit.access import ApiToken, ApiTokens, TokenCaller, TokenRole
from holdfast.kit.access.authorization import has_role
from holdfast.kit.access.scopes import check_scopes, covers
from holdfast.model import Caller
from holdfast.operation import Operator, operation
from holdfast.runtime import Runtime
from holdfast.store import Transaction


class TokenRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    name: str
    role: TokenRole
    tenant_id: str
    scopes: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokenPage(msgspec.Struct, frozen=True):
    items: list[TokenRow]
    cursor: str | None


class NewToken(msgspec.Struct, frozen=True):
    """The token itself, stored nowhere: keep it now."""

    token: str


class TokenRevoked(msgspec.Struct, frozen=True):
    revoked: str


async def list_tokens(
    runtime: Runtime, tenant_id: str | None, *, limit: int = 50, cursor: str | None = None
) -> TokenPage:
    """Tokens of a tenant, or of all where it is None, newest first."""
    store = runtime.store if tenant_id is None else runtime.store.tenant(tenant_id)
    tokens, after = await ApiTokens(store).page(limit=limit, cursor=cursor)
    return TokenPage([msgspec.convert(one, TokenRow, from_attributes=True) for one in tokens], after)


async def get(runtime: Runtime, token_id: str) -> ApiToken:
    """Return a token of any tenant as it is stored, or raise NotFoundError."""
    stored = await runtime.store.privileged().get(ApiToken, token_id)
    if stored is None:
        raise NotFoundError(f"no token {token_id!r}")
    return stored.doc


@operation("token.created", area="tokens", verb="create", needs="admin", subject="name")
async def create(
    runtime: Runtime,
    by: Operator,
    name: str,
    *,
    role: TokenRole,
    scopes: Sequence[str] = ("*",),
    expires_in_s: float | None = None,
) -> NewToken:
    """Create a token for the tenant that acts there at most as its creator may."""
    _require_reach(by.caller, role, by.tenant_id)
    _require_scopes(by.caller, check_scopes(scopes))
    token, write = ApiTokens(runtime.store).write(
        name, role=role, tenant_id=by.tenant_id, scopes=scopes, expires_in_s=expires_in_s, created_by=by.actor
    )

    async def act(tx: Transaction) -> None:
        tx.write(write)

    await by.commit(act, details={"role": role, "scopes": list(scopes)})
    return NewToken(token)


@operation("token.revoked", area="tokens", verb="revoke", needs="admin", subject="token_id")
async def revoke(runtime: Runtime, by: Operator, token_id: str) -> TokenRevoked:
    """Let nobody in with this token any more, at once."""
    stored = await get(runtime, token_id)
    if stored.tenant_id != by.tenant_id:
        raise NotFoundError(f"no token {token_id!r}")
    _require_reach(by.caller, stored.role, by.tenant_id)
    await by.commit(lambda tx: ApiTokens(runtime.store).revoke(token_id, tx))
    return TokenRevoked(token_id)


def _require_reach(caller: Caller, role: str, tenant_id: str) -> None:
    if not (caller.service if role == "service" else has_role(caller, role, tenant_id)):
        raise ForbiddenError(f"only a caller with the role {role} may do this to its tokens", needs=(role,))


def _require_scopes(caller: Caller, scopes: Sequence[str]) -> None:
    if not isinstance(caller, TokenCaller):
        return
    wider = [scope for scope in scopes if not covers(caller.scopes, *_parts(scope))]
    if wider:
        raise ForbiddenError(f"this token can't give a scope that it lacks: {', '.join(wider)}")


def _parts(scope: str) -> tuple[str, str]:
    area, _, action = scope.partition(":")
    return area, action or "*"
