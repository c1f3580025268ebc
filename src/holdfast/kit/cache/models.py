"""Documents of the cache: its values, and a number for each cache that clearing raises."""

from __future__ import annotations

from typing import Any

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, document


class CacheFields(Document):
    """The fields of a cached value; declare a subclass for another collection name or a typed value.

    `cached_at_ms` is the source's time of the value; `revision` grows with every change, also past a clear.
    """

    key: str
    value: Any
    cached_at_ms: int
    revision: int = 1


@document("holdfast_cache/{key}", id=ProvidedId(), tenant="tenant_id", access=SERVICE_ONLY)
class CacheDocument(CacheFields, rename="camel"):
    """A cached value of the kit's own collection."""

    tenant_id: str = NO_TENANT


@document("holdfast_cache_generations/{id}", id=ProvidedId(), tenant="tenant_id", access=SERVICE_ONLY)
class CacheGeneration(Document, rename="camel"):
    """How often a cache was cleared: a value loaded under an older number is not kept."""

    id: str
    tenant_id: str = NO_TENANT
    number: int = 1
