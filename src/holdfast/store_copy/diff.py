"""Comparison of two stores' documents, merged in id order, so each is read once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from holdfast.model.path import split_key
from holdfast.store import Snapshot
from holdfast.store_copy.models import CollectionDigest, Difference, Kind

Pair = tuple[Snapshot[Any] | None, Snapshot[Any] | None]
# Sorted, because an engine may return a mapping's keys in any order.
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def content(document: Any) -> bytes:
    """The canonical bytes of a document, equal on every engine."""
    return _ENCODER.encode(document)


async def pairs(
    ours: AsyncIterator[Snapshot[Any]], theirs: AsyncIterator[Snapshot[Any]]
) -> AsyncIterator[Pair]:
    """Every id that either side has, in order, with the document of each side."""
    one, other = await anext(ours, None), await anext(theirs, None)
    while one is not None or other is not None:
        first = min(item.key for item in (one, other) if item is not None)
        pair = (
            one if one is not None and one.key == first else None,
            other if other is not None and other.key == first else None,
        )
        yield pair
        if pair[0] is not None:
            one = await anext(ours, None)
        if pair[1] is not None:
            other = await anext(theirs, None)


class Comparison:
    """Compares one collection's pairs and hashes both sides."""

    def __init__(self, collection: str) -> None:
        self._collection = collection
        self._ours, self._theirs = _Digest(), _Digest()

    def compare(self, pair: Pair) -> Difference | None:
        ours = self._ours.add(pair[0])
        theirs = self._theirs.add(pair[1])
        if ours == theirs:
            return None
        item = pair[0] or pair[1]
        assert item is not None
        kind: Kind = "missing" if theirs is None else "extra" if ours is None else "changed"
        return Difference(collection=self._collection, id="/".join(split_key(item.key)), kind=kind)

    def digest(self) -> CollectionDigest:
        return CollectionDigest(
            collection=self._collection, documents=self._ours.count, hash=self._ours.hash,
            target_documents=self._theirs.count, target_hash=self._theirs.hash,
        )  # fmt: skip


class _Digest:
    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, item: Snapshot[Any] | None) -> bytes | None:
        if item is None:
            return None
        encoded = content(item.doc)
        self.count += 1
        key = item.key.encode()
        # With lengths, or documents split elsewhere could hash alike.
        self._hash.update(b"%d %d " % (len(key), len(encoded)) + key + encoded)
        return encoded

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
