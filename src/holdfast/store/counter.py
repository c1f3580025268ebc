"""A count that many commits add to at once, spread so that no single document is hot."""

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
    """One part of one count."""

    name: str
    shard: int
    value: int = 0
    id: str = ""


class Counter:
    """A whole number that commits add to and anybody may ask for; exact, whatever the concurrency.

    The store must be opened with `CounterShard` among its classes.

    Example: `await store.commit(create(run), *Counter(store, "runs").writes(1))`
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def writes(self, by: int = 1) -> list[Write]:
        """What adds `by` to the count, for the commit that makes it true."""
        shard = random.randrange(self._store.capabilities.counter_shards)
        made = CounterShard(name=self._name, shard=shard, value=by)
        return [upsert(made, changes={"value": Increment(by)})]

    async def value(self) -> int:
        """The count: one indexed sum over its few parts."""
        return int(await self._store.sum(Query(CounterShard).where("name", "==", self._name), "value"))
