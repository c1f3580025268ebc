"""Sharded counter: many commits add to it at once without a hot document."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from holdfast.model.access import SERVICE_ONLY
from holdfast.model.document import Document, document
from holdfast.model.identity import CompositeId
from holdfast.model.index import Index
from holdfast.store.commit import Write, upsert
from holdfast.store.query import Query
from holdfast.store.transforms import Increment

if TYPE_CHECKING:
    from holdfast.store.store import Store


@document(
    "counter_shards/{id}",
    id=CompositeId("name", "shard"),
    indexes=[Index("name", "value")],
    access=SERVICE_ONLY,
)
class CounterShard(Document):
    """One shard of a counter."""

    name: str
    shard: int
    value: int = 0
    id: str = ""


class Counter:
    """An integer that commits add to; exact under concurrency.

    The store must be opened with `CounterShard` among its classes.

    Example: `await store.commit(create(run), *Counter(store, "runs").writes(1))`
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def writes(self, by: int = 1) -> list[Write]:
        """Return the writes that add `by`, for the commit that counts."""
        shard = random.randrange(self._store.capabilities.counter_shards)
        counter = CounterShard(name=self._name, shard=shard, value=by)
        return [upsert(counter, changes={"value": Increment(by)})]

    async def value(self) -> int:
        """Return the count: one indexed sum over the shards."""
        return int(await self._store.sum(Query(CounterShard).where("name", "==", self._name), "value"))
