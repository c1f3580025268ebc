"""The schema last deployed: Firestore has no tables, but its indexes are deployed by the operator."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from google.api_core.exceptions import GoogleAPICallError

from holdfast.errors import DeclarationError
from holdfast.model.export.firestore_indexes import firestore_indexes
from holdfast.model.export.firestore_rules import firestore_rules
from holdfast.plural import plural
from holdfast.store.catalog import Catalog
from holdfast.store.firestore import wire
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.faults import translate
from holdfast.store.firestore.values import decode_fields, encode_fields
from holdfast.store.port import MigrationRequest

COLLECTION: Final = "_holdfast_schema"
_CONFIRMED: Final = "confirmed"


class DeployedSchema:
    """The declarations this database was last migrated to, one document per environment."""

    def __init__(self, client: FirestoreClient, catalog: Catalog) -> None:
        self._client = client
        self._name = f"{client.address.root}/{COLLECTION}/{catalog.env}"
        self._catalog, self._wanted = catalog, _declared(catalog)

    async def diff(self, request: MigrationRequest) -> list[str]:
        known = await self._known()
        if request.only is not None:
            return []
        lines: list[str] = []
        for kind, (word, advice) in _KINDS.items():
            old, new = set(known.get(kind, ())), set(self._wanted[kind])
            if request.drop:
                lines += [f"drop {word} {name}{advice}" for name in sorted(old - new)]
            else:
                lines += [f"add {word} {name}{advice}" for name in sorted(new - old)]
        return lines

    async def migrate(self, request: MigrationRequest) -> list[str]:
        lines = await self.diff(request)
        if lines:
            # What other releases declared stays on record, until it is dropped on request.
            known = await self._known()
            kept = {} if request.drop else known
            recorded = {kind: sorted({*kept.get(kind, ()), *names}) for kind, names in self._wanted.items()}
            await self._write({**known, **recorded})
        return lines

    async def undeployed(self, *, confirm: bool) -> list[str]:
        """Return the declared indexes, overrides and rules that nobody has confirmed as deployed."""
        known, deployable = await self._known(), self._deployable()
        lines = [line for line in deployable if line not in known.get(_CONFIRMED, ())]
        if confirm and lines:
            await self._write({**known, _CONFIRMED: deployable})
        return lines

    def _deployable(self) -> list[str]:
        indexes = [f"index {name}" for name in self._wanted["indexes"]]
        overrides = [f"field override {name}" for name in self._wanted["overrides"]]
        return [*indexes, *overrides, *self._rules()]

    def _rules(self) -> list[str]:
        schemas, env = self._catalog.schemas, self._catalog.env
        try:
            digest = hashlib.blake2b(firestore_rules(schemas, env).encode(), digest_size=6).hexdigest()
        except DeclarationError:
            # Models that name roles without saying who has them have no rules to deploy.
            return []
        return [f"rules of {plural(len(schemas), 'collection')}, {digest}"]

    async def _write(self, recorded: dict[str, Any]) -> None:
        document = wire.Document(name=self._name, fields=encode_fields(recorded))
        try:
            await self._client.commit([wire.Write(update=document)])
        except GoogleAPICallError as fault:
            raise translate(fault) from fault

    async def _known(self) -> dict[str, Any]:
        found = await self._client.read([self._name])
        return decode_fields(found[self._name].fields) if found else {}


_DEPLOY: Final = ": deploy the exported firestore.indexes.json"
_KINDS: Final = {
    "collections": ("collection", ""),
    "indexes": ("index", _DEPLOY),
    "overrides": ("field override", _DEPLOY),
}


def _declared(catalog: Catalog) -> dict[str, list[str]]:
    exported = msgspec.json.decode(firestore_indexes(catalog.schemas, catalog.env))
    paths = [schema.declared.path.replace("{env}", catalog.env) for schema in catalog.schemas]
    return {
        "collections": sorted(paths),
        "indexes": sorted(map(_index, exported["indexes"])),
        "overrides": sorted(map(_override, exported["fieldOverrides"])),
    }


def _index(one: dict[str, Any]) -> str:
    fields = ", ".join(f"{f['fieldPath']} {f.get('order') or f['arrayConfig']}" for f in one["fields"])
    return f"{one['collectionGroup']} ({fields}) {one['queryScope']}"


def _override(one: dict[str, Any]) -> str:
    modes = [f"{i.get('order') or i['arrayConfig']} {i['queryScope']}" for i in one["indexes"]]
    return (
        f"{one['collectionGroup']}.{one['fieldPath']} ({', '.join(modes)}{', ttl' if one.get('ttl') else ''})"
    )


def check_declarations(catalog: Catalog) -> None:
    """Refuse queries of fields that a document doesn't store, because they are in its path only."""
    for schema in catalog.schemas:
        missing = set(schema.declared.path_only)
        queried = {field.column.path for index in schema.indexes for field in index.fields}
        if schema.tenant is not None and not schema.tenant_is_parent:
            queried.add(schema.tenant.path)
        for name in sorted(missing & queried):
            raise DeclarationError(
                f"{schema.name}: {name} is queried, so it must be stored; remove it from path_only", name
            )
