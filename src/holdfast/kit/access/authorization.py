"""Saying why not: what an act needs and what the caller has."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ForbiddenError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.scopes import covers
from holdfast.kit.access.tokens import TokenCaller
from holdfast.model import Caller
from holdfast.model.access import PLATFORM_ROLES, ROLES


def at_least(caller: Caller, role: str, tenant_id: str) -> bool:
    """Whether the caller has the role, or a higher one, in the tenant; the service itself always."""
    has = caller.roles.get(tenant_id)
    return caller.service or (has in ROLES and ROLES.index(has) >= ROLES.index(role))


def privileged(caller: Caller) -> bool:
    """Whether the caller may ask for any tenant: the service, or an administrator of the whole."""
    return caller.service or caller.roles.get(NO_TENANT) in PLATFORM_ROLES


def has_role(caller: Caller, role: str, tenant_id: str) -> bool:
    """Whether the caller has the role there; an administrator of the whole is judged by that everywhere."""
    return at_least(caller, role, NO_TENANT if privileged(caller) else tenant_id)


def check_scope(caller: Caller, area: str, action: str) -> None:
    """Refuse a token that is not good for this, whatever its role."""
    if isinstance(caller, TokenCaller) and not covers(caller.scopes, area, action):
        raise ForbiddenError(
            f"the token needs the scope {area}:{action}; it has {', '.join(caller.scopes)}",
            needs=(f"{area}:{action}",),
            has=" ".join(caller.scopes),
        )


def refusal(what: str, needs: Sequence[str], caller: Caller, tenant_id: str | None) -> ForbiddenError:
    has = _role_of(caller, tenant_id)
    who = caller.user_id or ("the service" if caller.service else "an unknown caller")
    where = f" in {tenant_id}" if tenant_id is not None and has != "service" else ""
    return ForbiddenError(
        f"{what} needs {' or '.join(needs) or 'nobody'}; {who} is {has or 'nothing'}{where}",
        needs=tuple(needs),
        has=has,
    )


def _role_of(caller: Caller, tenant_id: str | None) -> str:
    if caller.service:
        return "service"
    role = caller.roles.get(tenant_id) if tenant_id is not None else None
    return role or ("signed_in" if caller.user_id is not None else "")
