"""Profiles of people: made when they first act, changed by themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.errors import NotFoundError
from holdfast.model import Caller
from holdfast.operation import Operator
from holdfast.services.gwi.models.tenants import TENANT_PATTERN, Preferences, UserProfile
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.store import Store, Transaction, Write, create, put

# The ids of people whose issuer's subjects are GitHub's user ids, by the issuer's `user_prefix`.
GITHUB_PREFIX: Final = "github:"


class ProfileChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a person changes about themselves; what is not named stays."""

    display_name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    default_tenant_id: Annotated[str, Meta(pattern=f"^{TENANT_PATTERN}$")] | None = None
    notifications_enabled: bool | None = None
    theme: Literal["light", "dark", "system"] | None = None


def github_user_id_of(user_id: str) -> int:
    """The GitHub user that a person's id names; 0 where it names none."""
    number = user_id.removeprefix(GITHUB_PREFIX)
    return int(number) if user_id.startswith(GITHUB_PREFIX) and number.isdecimal() else 0


def new_profile(caller: Caller, *, now: datetime) -> UserProfile:
    """The profile of somebody whom their issuer vouches for."""
    assert caller.user_id is not None
    return UserProfile(
        id=caller.user_id, github_user_id=github_user_id_of(caller.user_id),
        display_name=caller.email or caller.user_id, email=caller.email, preferences=Preferences(),
        created_at=now, last_login_at=now, updated_at=now,
    )  # fmt: skip


async def profile_write(tx: Transaction, caller: Caller, *, now: datetime) -> list[Write]:
    """The profile of a caller as a write, where they have none yet."""
    if caller.user_id is None or await tx.get(UserProfile, caller.user_id) is not None:
        return []
    return [create(new_profile(caller, now=now))]


class ProfileOperations:
    """Acts of people on their own profile.

    Example: `await gwi.profiles.change(by, ProfileChange(theme="dark"))`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store, store.clock

    async def get(self, caller: Caller) -> UserProfile:
        """A person's profile; what it would be where they have not acted yet."""
        if caller.user_id is None:
            raise NotFoundError("only people have a profile")
        stored = await self._store.get(UserProfile, caller.user_id)
        return new_profile(caller, now=self._clock.now()) if stored is None else stored.doc

    @gwi_operation("profile.changed", verb="update", needs="person")
    async def change(self, by: Operator, change: ProfileChange) -> UserProfile:
        """Change what is named of the caller's own profile."""
        named = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
        own = {name: named.pop(name) for name in ("display_name",) if name in named}

        async def act(tx: Transaction) -> UserProfile:
            now = self._clock.now()
            stored = await tx.get(UserProfile, by.actor)
            profile = new_profile(by.caller, now=now) if stored is None else stored.doc
            preferences = msgspec.structs.replace(profile.preferences, **named)
            profile = msgspec.structs.replace(profile, preferences=preferences, updated_at=now, **own)
            tx.write(put(profile))
            return profile

        return await by.commit(act, subject=by.actor, details={"changed": sorted({*own, *named})})
