"""Who may do what with a document, declared with it and judged in one place.

A rule is a word: `public` anybody; `signed_in` anybody known; `service` the platform itself;
`viewer`, `developer`, `admin`, `owner` people with at least that role in the document's tenant;
`self:FIELD` the person named by that field. A caller is let in when any word lets them in.

Where roles come from is declared too: `Membership` marks the collection that gives a person their
role in a tenant, so that the exported rules look where the service looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import DeclarationError

Action = Literal["read", "create", "update", "delete"]
ROLES: Final = ("viewer", "developer", "admin", "owner")
_WORDS: Final = frozenset({"public", "signed_in", "service", *ROLES})


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a person with a role per tenant, or the service itself, or nobody."""

    user_id: str | None = None
    roles: Mapping[str, str] = {}
    service: bool = False


ANONYMOUS: Final = Caller()
SERVICE: Final = Caller(service=True)


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a collection holds who has which role in which tenant; it counts while `when` holds.

    The collection is at the top level and its id is `Joined(user, tenant)`, so that one look-up answers.

    Example: `Membership(user="user_id", tenant="tenant_id", role="role", when={"status": "active"})`
    """

    user: str
    tenant: str
    role: str
    when: Mapping[str, str | int | bool] = {}


@dataclass(frozen=True, init=False)
class Access:
    """Rules for reading and for writing; `create`, `update`, `delete` narrow `write` where given.

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
        """Whether the caller may do this to a document of that tenant; `fields` by their declared names."""
        return any(_lets_in(word, caller, tenant=tenant, fields=fields) for word in self.rules(action))


def _lets_in(word: str, caller: Caller, *, tenant: str | None, fields: Mapping[str, Any]) -> bool:
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
    role = caller.roles.get(tenant) if tenant is not None else None
    return role in ROLES and ROLES.index(role) >= ROLES.index(word)


SERVICE_ONLY: Final = Access()
