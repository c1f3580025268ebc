"""Routes for API tokens."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.access import TokenRole
from holdfast.operations import tokens
from holdfast.operations.tokens import NewToken, TokenPage, TokenRevoked
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route


class CreateToken(RequestBody, frozen=True):
    """`scopes` are the most it may do, as in `deliveries:read`; without `expires_in_s` it does not expire."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    role: TokenRole
    scopes: Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)] = ("*",)
    expires_in_s: Annotated[float, Meta(gt=0)] | None = None


@read_route("/tokens", "admin", area="tokens")
async def list_tokens(
    runtime: RuntimeDependency, tenant_id: TenantId, limit: Limit = 50, cursor: Cursor = None
) -> TokenPage:
    """The tenant's tokens, newest first; never the tokens themselves."""
    return await tokens.list_tokens(runtime, tenant_id, limit=limit, cursor=cursor)


@action_route("/tokens", tokens.create)
async def create(runtime: RuntimeDependency, by: By, data: JSONBody[CreateToken]) -> NewToken:
    """Create a token. It is in this answer and nowhere else."""
    return await tokens.create(
        runtime, by, data.name, role=data.role, scopes=data.scopes, expires_in_s=data.expires_in_s
    )


@action_route("/tokens/{token_id:str}/revoke", tokens.revoke)
async def revoke(runtime: RuntimeDependency, by: By, token_id: FromPath[str]) -> TokenRevoked:
    """Let nobody in with this token any more, at once."""
    return await tokens.revoke(runtime, by, token_id)


ROUTES: Final = (list_tokens, create, revoke)
