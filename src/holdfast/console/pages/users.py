"""People who may sign in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import has_role
from holdfast.model.access import ROLES
from holdfast.operations.users import list_users
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50


def pages(runtime: Runtime) -> list[Page]:
    async def users(ask: PageRequest) -> Mapping[str, Any]:
        wanted = ask.text("q", characters_max=100)
        page = await list_users(runtime, name=wanted, limit=ROWS, cursor=ask.cursor)
        # Nobody gives more than they have.
        roles = [role for role in ROLES if has_role(ask.caller, role, NO_TENANT)]
        return {"rows": page.items, "after": page.cursor, "roles": roles, "wanted": wanted}

    return [
        Page(
            path="/users", title="Users", template="users.html", data=users, needs="admin", platform=True,
            live=("users",),
        )
    ]  # fmt: skip
