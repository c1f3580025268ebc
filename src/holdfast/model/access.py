"""Access rules of a document: declared with it, evaluated in one place.

A rule is a word: `public` allows anybody; `signed_in` any known caller; `service` the platform itself;
`viewer`, `developer`, `admin`, `owner` people with at least that role in the document's tenant;
`self:FIELD` the person named by that field. A caller is allowed when any word allows them.

A document without a tenant belongs to the platform: roles are those in the tenant `NO_TENANT`. Whoever is
admin or owner there has that role in every tenant.

`Membership` marks the collection that gives a person their role in a tenant, so that exported rules look
roles up where the service does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import DeclarationError

Action = Literal["read", "create", "update", "delete"]
NO_TENANT: Final = "-"
# Stands for every tenant where lists are read; no tenant can have this name.
ALL_TENANTS: Final = "*"
ROLES: Final = ("viewer", "developer", "admin", "owner")
PLATFORM_ROLES: Final = ("admin", "owner")
_WORDS: Final = frozenset({"public", "signed_in", "service", *ROLES})


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The identity behind a request: a person with a role per tenant, a visitor, the service, or nobody."""

    user_id: str | None = None
    roles: Mapping[str, str] = {}
    service: bool = False
    email: str = ""  # a person's address, where the issuer of their identity has verified it
    visitor: bool = False  # of a service's public pages: known to that service, without roles

    def role_in(self, tenant: str | None) -> str | None:
        """Return the role that counts in this tenant; None is the platform itself."""
        platform_role = self.roles.get(NO_TENANT)
        if tenant is None or platform_role in PLATFORM_ROLES:
            return platform_role
        return self.roles.get(tenant)


ANONYMOUS: Final = Caller()
SERVICE: Final = Caller(service=True)


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """Declare that a collection gives people their role in a tenant; an entry counts while `when` holds.

    One lookup must answer, so the collection is at the top level and its id is `CompositeId(user, tenant)`,
    or the user's id alone where a person has one role. Exported rules use the membership that a service
    declares; without one, the `platform`'s own users.

    Example: `Membership(user="user_id", tenant="tenant_id", role="role", when={"status": "active"})`
    """

    user: str
    tenant: str
    role: str
    when: Mapping[str, str | int | bool | None] = {}
    platform: bool = False


@dataclass(frozen=True, init=False)
class Access:
    """Rules for reading and for writing; `create`, `update`, `delete` override `write` where given.

    Example: `Access(read=["viewer"], write=["admin", "service"])`
    """

    read: tuple[str, ...]
    create: tuple[str, ...]
    update: tuple[str, ...]
    delete: tuple[str, ...]

    def __init__(
        self,
        *,
        read: Iterable[str] = ("service",),
        write: Iterable[str] = ("service",),
        create: Iterable[str] | None = None,
        update: Iterable[str] | None = None,
        delete: Iterable[str] | None = None,
    ) -> None:
        write = tuple(write)
        chosen = {"read": read, "create": create, "update": update, "delete": delete}
        for action, words in chosen.items():
            rules = tuple(write if words is None else words)
            for word in rules:
                if word not in _WORDS and not word.startswith("self:"):
                    raise DeclarationError(
                        f"access word {word!r}: use {', '.join(sorted(_WORDS))} or self:FIELD"
                    )
            object.__setattr__(self, action, rules)

    @property
    def words(self) -> frozenset[str]:
        return frozenset((*self.read, *self.create, *self.update, *self.delete))

    def rules(self, action: Action) -> tuple[str, ...]:
        rules: tuple[str, ...] = getattr(self, action)
        return rules

    def allows(
        self, caller: Caller, action: Action, *, tenant: str | None, fields: Mapping[str, Any]
    ) -> bool:
        """Return whether the caller may do this to a document of that tenant (`fields` by declared names)."""
        return allows_any(self.rules(action), caller, tenant=tenant, fields=fields)


def allows_any(
    words: Iterable[str], caller: Caller, *, tenant: str | None, fields: Mapping[str, Any] = {}
) -> bool:
    """Return whether any of the words allows the caller: the one decision of documents, routes and exports.

    Example: `allows_any(["admin", "service"], caller, tenant="acme")`
    """
    return any(_allows(word, caller, tenant=tenant, fields=fields) for word in words)


def _allows(word: str, caller: Caller, *, tenant: str | None, fields: Mapping[str, Any]) -> bool:
    if word == "public":
        return True
    if word == "service":
        return caller.service
    if caller.user_id is None:
        return False
    if word == "signed_in":
        return True
    if word.startswith("self:"):
        return bool(fields.get(word[5:]) == caller.user_id)
    role = caller.role_in(tenant)
    return role in ROLES and ROLES.index(role) >= ROLES.index(word)


SERVICE_ONLY: Final = Access()
ADMINS_READ: Final = Access(read=["admin", "service"])
DEVELOPERS_READ: Final = Access(read=["developer", "service"])
MEMBERS_READ: Final = Access(read=["viewer", "service"])
