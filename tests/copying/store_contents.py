"""Everything a store contains, read without the copier's own scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.model import Document, schema_of
from holdfast.store import Query, Store


async def contents(store: Store, classes: Sequence[type[Document]]) -> dict[str, dict[str, Any]]:
    """Collection to key to fields, values with their types."""
    found: dict[str, dict[str, Any]] = {}
    for cls in classes:
        query: Query[Any] = Query(cls).limit(7)
        if schema_of(cls).path.nested:
            query = query.across_parents()
        items = [item async for item in store.privileged().scan(query)]
        found[cls.__name__] = {item.key: _typed(msgspec.structs.asdict(item.doc)) for item in items}
    return found


def _typed(value: Any) -> Any:
    """1 and 1.0 and True are equal in Python and must not be here."""
    if isinstance(value, dict):
        return {key: _typed(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_typed(one) for one in value]
    if isinstance(value, msgspec.Struct):
        return _typed(msgspec.structs.asdict(value))
    return type(value).__name__, value
