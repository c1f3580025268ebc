"""Documents of connections and pending consents."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, Index, Lifecycle, ProvidedId, Retention, document

Status = Literal["connected", "needs_reauth", "revoked"]
SEALED_TOKENS: Final = ("access_token", "refresh_token", "former_refresh_token")
SEALED_CONSENT: Final = ("verifier",)


def connection_id(tenant_id: str, provider: str, account: str) -> str:
    """The id of the one connection a tenant has with this account.

    Example: `connection_id("acme", "google", "1042")` gives `2f0c…`, 32 characters, always the same
    """
    return hashlib.sha256(msgspec.msgpack.encode((tenant_id, provider, account))).hexdigest()[:32]


@document(
    "holdfast_connections/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{32}"),
    tenant="tenant_id",
    indexes=[
        Index("-connected_at"),
        Index("status", "-connected_at"),
        Index("-connected_at", across="tenants"),
        Index("status", "-connected_at", across="tenants"),
        Index("provider", "account", across="tenants"),
    ],
    lifecycle=Lifecycle(
        "status",
        initial=["connected"],
        moves={
            "connected": ["needs_reauth", "revoked"],
            "needs_reauth": ["connected", "revoked"],
            "revoked": ["connected"],
        },
    ),
    immutable=["provider", "account"],
    retention=Retention("ended_at", after_s=90 * 86_400),
    access=SERVICE_ONLY,
)
class Connection(Document, rename="camel"):
    """One account's grant to one tenant. The tokens are sealed; `scopes` are those that were granted.

    `generation` counts grants and refreshes: the answer to an older request never overwrites a newer one.
    `former_refresh_token` is stored until its successor has worked. A revoked connection has its tokens until
    the provider was told. `purpose` and `payload` are those of the consent, for the next one of this account.
    """

    id: str
    tenant_id: str = NO_TENANT
    provider: str
    account: str
    name: str = ""
    purpose: str = ""
    payload: dict[str, Any] = {}
    scopes: list[str] = []
    asked: list[str] = []
    access_token: str = ""
    refresh_token: str = ""
    former_refresh_token: str = ""
    expires_at: datetime | None = None
    status: Status = "connected"
    reason: str = ""
    connected_at: datetime
    refreshed_at: datetime | None = None
    retry_at: datetime | None = None
    failures: int = 0
    ended_at: datetime | None = None
    generation: int = 1

    @property
    def refused(self) -> list[str]:
        """The scopes that were requested and not granted."""
        return [scope for scope in self.asked if scope not in self.scopes]


@document(
    "holdfast_consents/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    retention=Retention("expires_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class Consent(Document, rename="camel"):
    """A person was sent to a provider and is expected back, once. The id is the hash of their state.

    Before they open their start link it has no verifier, and its id is the hash of the link's token.
    """

    id: str
    tenant_id: str = NO_TENANT
    provider: str
    scopes: list[str]
    redirect_uri: str
    purpose: str = ""
    payload: dict[str, Any] = {}
    hint: str = ""
    return_path: str = ""
    verifier: str = ""
    bound_to: str = ""
    created_at: datetime
    expires_at: datetime
