"""Kinds of callers, and the decision whether a caller may act: one for routes, pages and operations.

| kind | who |
|---|---|
| `public` | anybody |
| `visitor` | somebody with a session of a service's own public pages |
| `person` | somebody signed in or with an identity token, whether or not they have a role in any tenant |
| `viewer`, `developer`, `admin`, `owner` | at least that role in the tenant, or on the platform |
| `service` | a service account |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.errors import ForbiddenError
from holdfast.kit.access.scopes import covers
from holdfast.kit.access.tokens import TokenCaller
from holdfast.model import Caller
from holdfast.model.access import ALL_TENANTS, NO_TENANT, PLATFORM_ROLES, ROLES, allows_any

PUBLIC: Final = "public"
VISITOR: Final = "visitor"
PERSON: Final = "person"
SERVICE_ACCOUNT: Final = "service"
KINDS: Final = (PUBLIC, VISITOR, PERSON, *ROLES, SERVICE_ACCOUNT)


def meets(caller: Caller, needs: str, tenant_id: str) -> bool:
    """Whether the caller is of the kind that is needed, or has the role in the tenant.

    Example: `meets(caller, "admin", "acme")`
    """
    if needs == VISITOR:
        return caller.visitor
    if needs == PERSON:
        return is_person(caller)
    words = (SERVICE_ACCOUNT,) if needs == SERVICE_ACCOUNT else (needs, SERVICE_ACCOUNT)
    return allows_any(words, caller, tenant=tenant_id)


def is_person(caller: Caller) -> bool:
    """Whether this is somebody who signed in or sent an identity token, not a token, service or visitor."""
    machine = caller.service or isinstance(caller, TokenCaller)
    return caller.user_id is not None and not machine and not caller.visitor


def has_role(caller: Caller, role: str, tenant_id: str) -> bool:
    """Whether the caller has the role in the tenant; a platform administrator has theirs in every tenant."""
    return meets(caller, role, tenant_id)


def privileged(caller: Caller) -> bool:
    """Whether the caller may access any tenant: the service, or a platform administrator."""
    return caller.service or caller.roles.get(NO_TENANT) in PLATFORM_ROLES


def own_tenant(caller: Caller) -> str:
    """The tenant of the caller's first role; the platform where they have none."""
    return next(iter(caller.roles), NO_TENANT)


def default_tenant(caller: Caller) -> str:
    """Whose documents lists show where none are asked for: a platform administrator's are everybody's."""
    own = own_tenant(caller)
    return ALL_TENANTS if own == NO_TENANT and privileged(caller) else own


def check_act(caller: Caller, needs: str, *, area: str, action: str, tenant_id: str) -> None:
    """Refuse an act unless the caller meets what it needs, and a token has the scope."""
    if needs == PUBLIC:
        return
    check_scope(caller, area, action)
    if not meets(caller, needs, tenant_id):
        kinds = (needs,) if needs in (VISITOR, PERSON, SERVICE_ACCOUNT) else (needs, SERVICE_ACCOUNT)
        raise refusal(f"{action} of {area}", kinds, caller, tenant_id)


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
        act=act,
    )


def _role_of(caller: Caller, tenant_id: str | None) -> str:
    if caller.service:
        return "service"
    role = caller.role_in(tenant_id) if tenant_id is not None else None
    return role or ("signed_in" if caller.user_id is not None else "")
