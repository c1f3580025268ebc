"""Documents that not everybody may see, and people who would like to."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from holdfast.model import Access, Claim, CompositeId, Document, Index, Membership, document


@document(
    "{env}-notes/{id}",
    tenant="tenant_id",
    indexes=[Index("owner_id")],
    claim=Claim(due="due_at", fence="fence"),
    access=Access(read=["viewer"], create=["developer"], update=["self:owner_id", "admin"], delete=["admin"]),
)
class Note(Document):
    id: str
    tenant_id: str = "acme"
    owner_id: str = "ann"
    text: str = ""
    likes: int = 0
    due_at: datetime | None = None
    fence: int = 0


@document(
    "members/{id}",
    id=CompositeId("user_id", "tenant_id"),
    tenant="tenant_id",
    membership=Membership(user="user_id", tenant="tenant_id", role="role", when={"status": "active"}),
)
class Member(Document):
    id: str = ""
    user_id: str
    tenant_id: str
    role: str
    status: Literal["active", "suspended"] = "active"
