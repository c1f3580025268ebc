"""The stored form of an API token: its hash, never the token itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from holdfast.kit import NO_TENANT
from holdfast.model import HIDDEN, SERVICE_ONLY, Document, Index, ProvidedId, Retention, document

TokenRole = Literal["viewer", "developer", "admin", "owner", "service"]


@document(
    "holdfast_api_tokens/{id}",
    id=ProvidedId(pattern=r"[a-z2-7]{16}"),
    tenant="tenant_id",
    indexes=[Index("-created_at"), Index("-created_at", across="tenants")],
    immutable=["hash", "role", "scopes", "created_at", "created_by"],
    retention=Retention("ended_at", after_s=90 * 86_400),
    access=SERVICE_ONLY,
)
class ApiToken(Document, rename="camel"):
    """An API token. Its id is part of the token, so that one read finds it; the hash proves the rest.

    `ended_at` is set when it expires or is revoked.
    """

    id: str
    tenant_id: str = NO_TENANT
    name: str
    role: TokenRole
    scopes: list[str]
    hash: Annotated[str, HIDDEN]
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    ended_at: datetime | None = None
    last_used_at: datetime | None = None
