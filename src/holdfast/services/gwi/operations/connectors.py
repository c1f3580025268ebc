"""Connectors: settings and sealed secrets of the systems that a tenant is connected to."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from holdfast.errors import NotFoundError, VersionConflictError
from holdfast.kit.vault import Vault
from holdfast.operation import Operator
from holdfast.projection import project
from holdfast.services.gwi.models.tenants import ConnectorConfig
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.operations.tenants import receipt_fields, require_tenant
from holdfast.store import Query, QueryPage, Store, Transaction, delete, put

SECRETS_MAX: Final = 20


class ConnectorChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A connector's whole configuration; without `secrets` those that are stored stay.

    `version` is the one that it replaces, 0 for a new one; without it any.
    """

    enabled: bool = True
    settings: dict[str, Any] = {}
    secrets: (
        Annotated[dict[str, Annotated[str, Meta(max_length=8_000)]], Meta(max_length=SECRETS_MAX)] | None
    ) = None
    version: Annotated[int, Meta(ge=0)] | None = None


class ConnectorView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A connector as people see it: of its secrets only the names."""

    id: str
    enabled: bool
    settings: dict[str, Any]
    secret_names: list[str]
    version: int
    updated_at: Any
    updated_by: str


def connector_view(config: ConnectorConfig) -> ConnectorView:
    return project(config, ConnectorView)


class ConnectorOperations:
    """Acts on the connectors of a tenant.

    Example: `await gwi.connectors.configure(by, "jira", ConnectorChange(settings={"project": "SHOP"}))`
    """

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store, self._clock = store, store.clock
        self._sealed = vault.field(ConnectorConfig, "secrets")

    async def page(
        self, tenant_id: str, *, limit: int = 100, cursor: str | None = None
    ) -> QueryPage[ConnectorConfig]:
        """The connectors by name."""
        query = Query(ConnectorConfig).under(tenant_id).order_by("id").limit(limit).after(cursor)
        return await self._store.tenant(tenant_id).query(query)

    async def get(self, tenant_id: str, connector_id: str) -> ConnectorView:
        """A connector's configuration, without its secrets."""
        stored = await self._store.tenant(tenant_id).get(ConnectorConfig, tenant_id, connector_id)
        if stored is None:
            raise NotFoundError(f"this tenant has no connector {connector_id!r}")
        return connector_view(stored.doc)

    async def secrets(self, tenant_id: str, connector_id: str) -> dict[str, str]:
        """The secrets of an enabled connector, for those who call the system."""
        stored = await self._store.tenant(tenant_id).get(ConnectorConfig, tenant_id, connector_id)
        if stored is None or not stored.doc.enabled:
            raise NotFoundError(f"this tenant has no enabled connector {connector_id!r}")
        if not stored.doc.secrets:
            return {}
        opened = self._sealed.open(stored.doc.secrets, tenant_id, connector_id).reveal()
        return msgspec.json.decode(opened, type=dict[str, str])

    @gwi_operation("connector.configured", verb="update", needs="admin", subject="connector_id")
    async def configure(self, by: Operator, connector_id: str, change: ConnectorChange) -> ConnectorView:
        """Store a connector's configuration; its secrets are sealed."""

        async def act(tx: Transaction) -> ConnectorConfig:
            await require_tenant(tx, by.tenant_id)
            stored = await tx.get(ConnectorConfig, by.tenant_id, connector_id)
            config = self._configured(by, connector_id, None if stored is None else stored.doc, change)
            tx.write(put(config))
            return config

        details = {
            "settings": sorted(change.settings), "secrets": sorted(change.secrets or {}),
            "enabled": change.enabled,
        }  # fmt: skip
        fields = receipt_fields(by, f"Configure the connector {connector_id}", "connector")
        return connector_view(await by.commit(act, details=details, fields=fields))

    def _configured(
        self, by: Operator, connector_id: str, before: ConnectorConfig | None, change: ConnectorChange
    ) -> ConnectorConfig:
        current = 0 if before is None else before.version
        if change.version is not None and change.version != current:
            raise VersionConflictError(f"the connector is at version {current}; read it again")
        now = self._clock.now()
        config = before or ConnectorConfig(
            id=connector_id, tenant_id=by.tenant_id, created_at=now, updated_at=now
        )
        sealed: dict[str, Any] = {}
        if change.secrets is not None:
            text = msgspec.json.encode(change.secrets).decode()
            sealed["secrets"] = self._sealed.seal(text, by.tenant_id, connector_id)
            sealed["secret_names"] = sorted(change.secrets)
        return msgspec.structs.replace(
            config, enabled=change.enabled, settings=change.settings, version=current + 1, updated_at=now,
            updated_by=by.actor, **sealed,
        )  # fmt: skip

    @gwi_operation("connector.removed", verb="remove", needs="admin", subject="connector_id")
    async def remove(self, by: Operator, connector_id: str) -> ConnectorView:
        """Delete a connector with its secrets."""

        async def act(tx: Transaction) -> ConnectorConfig:
            stored = await tx.get(ConnectorConfig, by.tenant_id, connector_id)
            if stored is None:
                raise NotFoundError(f"this tenant has no connector {connector_id!r}")
            tx.write(delete(ConnectorConfig, by.tenant_id, connector_id))
            return stored.doc

        fields = receipt_fields(by, f"Remove the connector {connector_id}", "connector")
        return connector_view(await by.commit(act, fields=fields))
