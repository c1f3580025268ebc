"""Documents of connections and pending consents."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast.errors import DeclarationError
from holdfast.kit import NO_TENANT
from holdfast.kit.model_checks import check_model
from holdfast.model import (
    HIDDEN,
    SERVICE_ONLY,
    CompositeId,
    Document,
    Index,
    Lifecycle,
    ProvidedId,
    Retention,
    document,
    schema_of,
)

Status = Literal["connected", "needs_reauth", "revoked"]
SEALED_TOKENS: Final = ("access_token", "refresh_token", "former_refresh_token")
SEALED_CONSENT: Final = ("verifier",)


def connection_id(tenant_id: str, provider: str, account: str) -> str:
    """The id of the one connection a tenant has with this account.

    Example: `connection_id("acme", "google", "1042")` gives `2f0c…`, 32 characters, always the same
    """
    return hashlib.sha256(msgspec.msgpack.encode((tenant_id, provider, account))).hexdigest()[:32]


# What lists and look-ups need; a service's own class declares them too.
CONNECTION_INDEXES: Final = (
    Index("-connected_at"),
    Index("status", "-connected_at"),
    Index("-connected_at", across="tenants"),
    Index("status", "-connected_at", across="tenants"),
    Index("provider", "account", across="tenants"),
)
CONNECTION_LIFE: Final = Lifecycle(
    "status",
    initial=["connected"],
    moves={
        "connected": ["needs_reauth", "revoked"],
        "needs_reauth": ["connected", "revoked"],
        "revoked": ["connected"],
    },
)


class ConnectionFields(Document, rename="camel"):
    """The fields of one account's grant to one tenant; declare a subclass for another collection name.

    The tokens are sealed; `scopes` are those that were granted. A `__post_init__` of the subclass may derive
    further fields from these.

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
    access_token: Annotated[str, HIDDEN] = ""
    refresh_token: Annotated[str, HIDDEN] = ""
    former_refresh_token: Annotated[str, HIDDEN] = ""
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
    "holdfast_connections/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{32}"),
    tenant="tenant_id",
    indexes=CONNECTION_INDEXES,
    lifecycle=CONNECTION_LIFE,
    immutable=["provider", "account"],
    retention=Retention("ended_at", after_s=90 * 86_400),
    access=SERVICE_ONLY,
)
class Connection(ConnectionFields, rename="camel"):
    """A connection of the kit's own collection."""


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
    verifier: Annotated[str, HIDDEN] = ""
    bound_to: str = ""
    created_at: datetime
    expires_at: datetime


class ConnectionModels(msgspec.Struct, frozen=True, kw_only=True):
    """The document class of connections; a service gives a subclass declared under its own names.

    A provided id is a hash of tenant, provider and account; a `CompositeId` may name them instead.

    Example: `ConnectionModels(connection=GoogleConnection)`
    """

    connection: type[ConnectionFields] = Connection

    def __post_init__(self) -> None:
        check_model(self.connection, ConnectionFields, path=("id",), indexes=CONNECTION_INDEXES)
        identity, needed = schema_of(self.connection).declared.id, {"tenant_id", "account"}
        named = set(identity.fields) if isinstance(identity, CompositeId) else set()
        if not isinstance(identity, ProvidedId) and not needed <= named <= needed | {"provider"}:
            raise DeclarationError(
                f"{self.connection.__name__} needs a provided id or CompositeId('tenant_id', 'account')"
            )

    @property
    def all(self) -> tuple[type[Document], ...]:
        return (self.connection,)

    def id_of(self, tenant_id: str, provider: str, account: str) -> str:
        """The id of the one connection a tenant has with this account."""
        identity = schema_of(self.connection).declared.id
        values = {"tenant_id": tenant_id, "provider": provider, "account": account}
        return identity.make(values.__getitem__) or connection_id(tenant_id, provider, account)


CONNECTION_MODELS: Final = ConnectionModels()
