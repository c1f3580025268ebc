"""Whether a caller may do something to a document, as the declaration says."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.access import Action, Caller
from holdfast.model.schema import Schema


def permits(schema: Schema[Any], caller: Caller, *, action: Action, old: Any = None, new: Any = None) -> bool:
    """Judge the document as it is (`old`) and as it would be (`new`): every one that is given.

    An update must be allowed on both, or somebody could write their way into a document or give
    one away; and it can't carry a document into another tenant.

    Example: `permits(schema_of(Run), caller, action="read", old=run)`
    """
    documents = [document for document in (old, new) if document is not None]
    tenants = {_tenant(schema, document) for document in documents}
    return len(tenants) == 1 and all(
        schema.access.allows(caller, action, tenant=_tenant(schema, one), fields=msgspec.structs.asdict(one))
        for one in documents
    )


def _tenant(schema: Schema[Any], document: Any) -> str | None:
    return None if schema.tenant is None else schema.tenant.read(document)
