"""Roles and scopes of callers, and refusals that name what was needed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ForbiddenError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.scopes import covers
from holdfast.kit.access.tokens import TokenCaller
from holdfast.model import Caller
from holdfast.model.access import PLATFORM_ROLES, ROLES


def at_least(caller: Caller, role: str, tenant_id: str) -> bool:
    """Whether the caller has the role, or a higher one, in the tenant; the service itself always does."""
    has = caller.roles.get(tenant_id)
    return caller.service or (has in ROLES and ROLES.index(has) >= ROLES.index(role))


def privileged(caller: Caller) -> bool:
    """Whether the caller may access any tenant: the service, or a platform administrator."""
    return caller.service or caller.roles.get(NO_TENANT) in PLATFORM_ROLES


def has_role(caller: Caller, role: str, tenant_id: str) -> bool:
    """Whether the caller has the role in the tenant; a platform administrator has theirs in every tenant."""
    return at_least(caller, role, NO_TENANT if privileged(caller) else tenant_id)


def check_scope(caller: Caller, area: str, action: str) -> None:
    """Refuse a token whose scopes do not cover this, whatever its role."""
    if isinstance(caller, TokenCaller) and not covers(caller.scopes, area, action):
        raise ForbiddenError(
            f"the token needs the scope {area}:{action}; it has {', '.join(caller.scopes)}",
            needs=(f"{area}:{action}",),
            has=" ".join(caller.scopes),
        )


def refusal(act: str, needs: Sequence[str], caller: Caller, tenant_id: str | None) -> ForbiddenError:
    has = _role_of(caller, tenant_id)
    name = caller.user_id or ("the service" if caller.service else "an unknown caller")
    where = f" in {tenant_id}" if tenant_id is not None and has != "service" else ""
    return ForbiddenError(
        f"{act} needs {' or '.join(needs) or 'the service'}; {name} has {has or 'no role'}{where}",
        needs=tuple(needs),
        has=has,
    )


def _role_of(caller: Caller, tenant_id: str | None) -> str:
    if caller.service:
        return "service"
    role = caller.roles.get(tenant_id) if tenant_id is not None else None
    return role or ("signed_in" if caller.user_id is not None else "")
