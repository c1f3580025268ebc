"""People who may sign in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.kit import NO_TENANT
from holdfast.kit.access import Users
from holdfast.kit.access.authorization import has_role
from holdfast.model.access import ROLES
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50


def pages(runtime: Runtime) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        people, after = await Users(runtime.store).page(limit=ROWS, cursor=ask.cursor)
        # Nobody gives more than they have.
        roles = [role for role in ROLES if has_role(ask.caller, role, NO_TENANT)]
        return {"rows": people, "after": after, "roles": roles}

    return [
        Page(
            path="/users", title="Users", template="users.html", data=listed, needs="admin", platform=True,
            live=("users",),
        )
    ]  # fmt: skip
