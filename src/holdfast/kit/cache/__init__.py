"""A cache in two levels: memory for this process, a document for all of them.

    get ──► memory ──► document ──► load, once for all who wait, in all processes
              ▲           ▲           │ kept unless the cache was cleared meanwhile
              └───────────┴───────────┘

A value's time is that of its source, on both levels: being copied into memory does not renew it. Past its
time to live it may be served for a while longer as stale while it is loaded again.
"""

from holdfast.kit.cache.cache import Cache, Cached, CacheStats, Loaded
from holdfast.kit.cache.models import CacheDocument, CacheFields, CacheGeneration

__all__ = ["Cache", "CacheDocument", "CacheFields", "CacheGeneration", "CacheStats", "Cached", "Loaded"]
