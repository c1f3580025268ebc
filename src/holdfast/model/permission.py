"""Authorization of a caller for a document, by its declared access, and the collection that gives roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import DeclarationError
from holdfast.model.access import Action, Caller
from holdfast.model.schema import Schema


def permits(schema: Schema[Any], caller: Caller, *, action: Action, old: Any = None, new: Any = None) -> bool:
    """Whether access allows the action on the document as it is (`old`) and as it would be (`new`).

    An update must be allowed on both, or a caller could write their way into a document or give it away;
    and it can't move a document to another tenant.

    Example: `permits(schema_of(Run), caller, action="read", old=run)`
    """
    documents = [document for document in (old, new) if document is not None]
    tenants = {_tenant(schema, document) for document in documents}
    return len(tenants) == 1 and all(
        schema.access.allows(caller, action, tenant=_tenant(schema, one), fields=msgspec.structs.asdict(one))
        for one in documents
    )


def membership_schemas(schemas: Sequence[Schema[Any]]) -> list[Schema[Any]]:
    """Return the collections that give roles: a service's own, where one is declared, and the platform's."""
    declared = [schema for schema in schemas if schema.membership]
    own = [schema for schema in declared if schema.membership and not schema.membership.platform]
    if len(own) > 1:
        raise DeclarationError(
            f"two collections give roles: {own[0].name} and {own[1].name}; declare one, or serve one of "
            "the services with --only"
        )
    return [*own, *(schema for schema in declared if schema not in own)]


def _tenant(schema: Schema[Any], document: Any) -> str | None:
    return None if schema.tenant is None else schema.tenant.read(document)
