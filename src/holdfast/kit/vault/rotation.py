"""Key rotation: re-encrypts a collection under the current key while others read and write it.

Small batches; each document is written only if it is unchanged since it was read, so a concurrent writer
always wins and its document is read again. The position is stored, so a killed rotation resumes; walks repeat
until one finds nothing to do.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from holdfast.errors import BadCursorError, ConflictError, DecryptionError, HoldfastError, NotFoundError
from holdfast.kit.vault.models import Rotation
from holdfast.kit.vault.vault import SealedField, Vault, key_id_of
from holdfast.model.document import Document, schema_of
from holdfast.model.path import split_key
from holdfast.store import Query, QueryPage, Snapshot, Store, Write, patch, put

D = TypeVar("D", bound=Document)
Report = Callable[[Rotation], None]
WALKS_MAX: Final = 20
ATTEMPTS_MAX: Final = 20
UNREADABLE_NAMED_MAX: Final = 100
COUNTED_PAGE: Final = 1_000


async def rotate(
    vault: Vault,
    cls: type[D],
    *,
    fields: Sequence[str],
    store: Store,
    batch: int = 200,
    report: Report | None = None,
) -> Rotation:
    """Re-encrypt these fields of every document under the current key; return the outcome.

    Call it again after a crash: it resumes. Values that can't be decrypted are left, counted and named. The
    store must know `Rotation`; `report` is called after each batch.

    Example: `await rotate(vault, Connection, fields=["refresh_token"], store=store)`
    """
    rotator = _Rotator(vault, cls, fields=fields, store=store.privileged(), batch=batch)
    rotation = await rotator.resume()
    while rotation.state == "running":
        await rotator.step(rotation)
        if report is not None:
            report(rotation)
    return rotation


async def count_by_key(cls: type[Document], fields: Sequence[str], store: Store) -> Counter[str]:
    """Count the sealed texts in these fields by the id of their key; empty for the legacy key."""
    counts: Counter[str] = Counter()
    query = Query(cls).limit(COUNTED_PAGE)
    query = query.across_parents() if schema_of(cls).path.nested else query

    def count(text: str) -> str:
        counts.update([key_id_of(text)] if text else [])
        return text

    async for item in store.privileged().scan(query):
        for head, *rest in (name.split(".") for name in fields):
            _map_path(getattr(item.doc, head), tuple(rest), count)
    return counts


class _Rotator(Generic[D]):
    def __init__(
        self, vault: Vault, cls: type[D], *, fields: Sequence[str], store: Store, batch: int
    ) -> None:
        self._cls, self._store = cls, store
        self._fields = [vault.field(cls, name) for name in fields]
        self._key_id = vault.current_key
        query = Query(cls).limit(batch)
        self._query = query.across_parents() if schema_of(cls).path.nested else query

    async def resume(self) -> Rotation:
        """The running rotation of these fields to this key, or a new one."""
        now, names = self._store.clock.now(), [field.name for field in self._fields]
        collection = "/".join(schema_of(self._cls).path.names)
        # The collection's own name may hold characters that an id can't.
        digest = hashlib.sha256(msgspec.msgpack.encode((collection, names))).hexdigest()[:16]
        stored = await self._store.get(Rotation, f"{digest}-{self._key_id}")
        if stored is not None and stored.doc.state == "running":
            return stored.doc
        # The first rotation to this key says since when the old ones sign nothing.
        started_at = now if stored is None else stored.doc.started_at
        return Rotation(
            id=f"{digest}-{self._key_id}", collection=collection, fields=names, key_id=self._key_id,
            started_at=started_at, updated_at=now,
        )  # fmt: skip

    async def step(self, rotation: Rotation) -> None:
        """Process one batch, then store the position: after a crash at most one batch is processed twice."""
        page = await self._page(rotation)
        rotation.seen_in_walk += len(page.items)
        resealed = await self._reseal(page.items, rotation)
        rotation.resealed += resealed
        rotation.resealed_in_walk += resealed
        rotation.cursor = page.cursor
        rotation.updated_at = self._store.clock.now()
        if page.cursor is None:
            self._end_walk(rotation)
        await self._store.commit(put(rotation))

    async def _page(self, rotation: Rotation) -> QueryPage[D]:
        try:
            return await self._store.query(self._query.after(rotation.cursor))
        except BadCursorError:
            # Written by another version of the declaration: walk from the start.
            return await self._store.query(self._query)

    def _end_walk(self, rotation: Rotation) -> None:
        if rotation.resealed_in_walk == 0 or rotation.walk >= WALKS_MAX:
            rotation.state = "finished"
            return
        rotation.walk += 1
        rotation.seen_in_walk = rotation.resealed_in_walk = rotation.unreadable_in_walk = 0
        rotation.unreadable = []

    async def _reseal(self, items: Sequence[Snapshot[D]], rotation: Rotation) -> int:
        resealed = 0
        for _ in range(ATTEMPTS_MAX):
            writes = [(item, write) for item in items if (write := self._write(item, rotation)) is not None]
            if not writes:
                return resealed
            outcomes = await self._store.settle([[write] for _, write in writes])
            conflicts = [
                item for (item, _), outcome in zip(writes, outcomes, strict=True) if _conflicted(outcome)
            ]
            resealed += len(writes) - len(conflicts)
            if not conflicts:
                return resealed
            fresh = await self._store.get_many(self._cls, [split_key(item.key) for item in conflicts])
            items = [item for item in fresh if item is not None]
        # A document that is written this often gets another look in the next walk.
        return resealed + 1

    def _write(self, item: Snapshot[D], rotation: Rotation) -> Write | None:
        changes: dict[str, Any] = {}
        ids = split_key(item.key)
        for field in self._fields:
            head = field.path[0]
            old = changes.get(head, getattr(item.doc, head))
            new = _map_path(old, field.path[1:], self._resealer(field, ids, rotation=rotation))
            if new != old:
                changes[head] = new
        return patch(self._cls, *ids, changes=changes, expect=item.unchanged) if changes else None

    def _resealer(
        self, field: SealedField, ids: tuple[str, ...], *, rotation: Rotation
    ) -> Callable[[str], str]:
        def reseal(text: str) -> str:
            if not text or field.is_current(text):
                return text
            try:
                return field.seal(field.open(text, *ids), *ids)
            except DecryptionError:
                rotation.unreadable_in_walk += 1
                if len(rotation.unreadable) < UNREADABLE_NAMED_MAX:
                    rotation.unreadable.append("/".join((*ids, field.name)))
                return text

        return reseal


def _conflicted(outcome: object) -> bool:
    """Whether somebody wrote first. A deleted document has nothing left to seal."""
    if isinstance(outcome, ConflictError):
        return not isinstance(outcome, NotFoundError)
    if isinstance(outcome, HoldfastError):
        raise outcome
    return False


def _map_path(value: Any, path: tuple[str, ...], act: Callable[[str], str]) -> Any:
    """The value with `act` applied to the texts at the end of the path, through lists."""
    if value is None or value is msgspec.UNSET:
        return value
    if isinstance(value, list):
        return [_map_path(one, path, act) for one in value]
    if path:
        return msgspec.structs.replace(value, **{path[0]: _map_path(getattr(value, path[0]), path[1:], act)})
    return act(value)
