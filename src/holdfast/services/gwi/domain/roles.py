"""Roles: who may give which. Pure."""

from __future__ import annotations

from holdfast.model.access import ROLES


def may_grant(own: str | None, role: str) -> bool:
    """Whether somebody with the role `own` may give or take `role`: nobody gives more than they have.

    Example: `may_grant("admin", "owner")` is False
    """
    return own in ROLES and ROLES.index(own) >= ROLES.index(role)
