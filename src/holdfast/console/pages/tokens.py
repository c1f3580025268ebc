"""API tokens of a tenant: create, list, revoke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from holdfast.kit.access import TokenRole
from holdfast.kit.access.authorization import has_role
from holdfast.model.access import ROLES
from holdfast.operations.tokens import list_tokens
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50


def pages(runtime: Runtime) -> list[Page]:
    async def tokens(ask: PageRequest) -> Mapping[str, Any]:
        page = await list_tokens(runtime, ask.tenant_id, limit=ROWS, cursor=ask.cursor)
        # Nobody gives more than they have.
        roles = [
            role for role in get_args(TokenRole)
            if (has_role(ask.caller, role, ask.tenant_id) if role in ROLES else ask.caller.service)
        ]  # fmt: skip
        return {"rows": page.items, "after": page.cursor, "roles": roles, "now": runtime.clock.now()}

    return [
        Page(
            path="/tokens", title="Tokens", template="tokens.html", data=tokens, needs="admin",
            live=("tokens",),
        )
    ]  # fmt: skip
