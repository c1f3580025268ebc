"""Full names of documents, and stored documents as `decide` sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from holdfast.model.path import JOINT, split_key
from holdfast.model.schema import Schema
from holdfast.store.commit import Snapshot
from holdfast.store.firestore.values import decode_fields, encode_fields
from holdfast.store.firestore.wire import Document, StructuredQuery, nanoseconds

# No encoded field has this name: those that begin with a tilde have two.
_REWRITTEN: Final = "~again"


class DocumentNames:
    """The names of one environment's documents in one database."""

    def __init__(self, root: str, env: str) -> None:
        self.root = root
        self.env = env

    def name(self, schema: Schema[Any], key: str) -> str:
        return f"{self.root}/{schema.path.document(split_key(key), self.env)}"

    def parent(self, schema: Schema[Any], ids: tuple[str, ...]) -> str:
        """Return the name of a sub-collection's parent; the root for a top-level collection."""
        above = self._names(schema)[: len(ids)]
        return "/".join((self.root, *(part for pair in zip(above, ids, strict=True) for part in pair)))

    def key(self, schema: Schema[Any], name: str) -> str | None:
        """Return the key of a document of the collection group, None when its path is another schema's."""
        parts = name[len(self.root) + 1 :].split("/")
        return JOINT.join(parts[1::2]) if parts[::2] == self._names(schema) else None

    def source(self, schema: Schema[Any], *, across_parents: bool) -> Any:
        """Return what a query reads: one collection, or the collections of this name under all parents."""
        group = schema.path.group(self.env)
        return StructuredQuery.CollectionSelector(collection_id=group, all_descendants=across_parents)

    def snapshots(self, schema: Schema[Any], rows: Iterable[Any]) -> Iterator[Snapshot[Any]]:
        """Yield the rows that are documents of this schema, and not of another with its collection group."""
        for row in rows:
            key = self.key(schema, row.name)
            if key is not None:
                yield FirestoreDocument(schema, key, row).snapshot()

    def _names(self, schema: Schema[Any]) -> list[str]:
        return [name.replace("{env}", self.env) for name in schema.path.names]


class FirestoreDocument:
    """A document as Firestore returned it; decoded only when asked."""

    def __init__(self, schema: Schema[Any], key: str, found: Any) -> None:
        self._schema, self._key, self._found = schema, key, found
        self._document: Any = None

    @property
    def version(self) -> int:
        return nanoseconds(self._found.update_time)

    @property
    def tenant(self) -> str | None:
        if self._schema.tenant is None:
            return None
        tenant: str = self._schema.tenant.read(self.document())
        return tenant

    def document(self) -> Any:
        if self._document is None:
            fields = {name: value for name, value in self._found.fields.items() if name != _REWRITTEN}
            self._document = self._schema.from_fields(decode_fields(fields), split_key(self._key))
        return self._document

    def make_different(self, document: Any) -> None:
        """Mark a document that equals this one: Firestore would ignore a write that changes nothing."""
        if dict(self._found.fields) == dict(document.fields):
            document.fields[_REWRITTEN].boolean_value = True

    def snapshot(self) -> Snapshot[Any]:
        return Snapshot(self.document(), self.version, self._key)


def to_document(schema: Schema[Any], document: Any, name: str) -> Any:
    return Document(name=name, fields=encode_fields(schema.to_fields(document)))
