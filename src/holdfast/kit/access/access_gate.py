"""Authorization of a caller against stored documents, by the model's access rules."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.errors import BadQueryError, NotFoundError, VersionConflictError
from holdfast.kit.access.authorization import check_scope, refusal
from holdfast.model import Caller, Document, schema_of
from holdfast.model.access import Action
from holdfast.model.path import split_key
from holdfast.model.permission import permits
from holdfast.model.schema import Schema
from holdfast.store import Fence, Query, QueryPage, Snapshot, Store, Transaction, Version, Write
from holdfast.store.commit import Present
from holdfast.store.write_rules import apply

D = TypeVar("D", bound=Document)


class Gate:
    """A store handle with a caller's permissions; a refusal raises `ForbiddenError` that says what it needs.

    Example:
        gate = Gate(store.tenant("acme"), caller)
        run = await gate.require("read", Run, "run-1")
        await gate.commit(patch(Run, "run-1", changes={"status": "cancelled"}))
    """

    def __init__(self, store: Store, caller: Caller) -> None:
        self._store = store
        self.caller = caller

    def check(self, action: Action, *, old: Document | None = None, new: Document | None = None) -> None:
        """Check a document: as it is (`old`), as it would be (`new`), or a change with both."""
        subject = old if old is not None else new
        if subject is None:
            raise BadQueryError("give the document: old, new or both")
        schema = schema_of(type(subject))
        check_scope(self.caller, area_of(schema), action)
        if not permits(schema, self.caller, action=action, old=old, new=new):
            tenant_id = None if schema.tenant is None else schema.tenant.read(subject)
            raise refusal(f"{action} of {schema.name}", schema.access.rules(action), self.caller, tenant_id)

    async def require(self, action: Action, cls: type[D], *ids: str) -> Snapshot[D]:
        """Return the stored document if the caller may do this to it; `NotFoundError` where there is none."""
        stored = await self._store.get(cls, *ids)
        if stored is None:
            raise NotFoundError(f"{schema_of(cls).name} {'/'.join(ids)!r} does not exist")
        self.check(action, old=stored.doc)
        return stored

    async def query(self, query: Query[D]) -> QueryPage[D]:
        """One page, refused when it holds a document the caller may not read: rules are no filters."""
        check_scope(self.caller, area_of(schema_of(query.cls)), "read")
        page = await self._store.query(query)
        for doc in page.docs:
            self.check("read", old=doc)
        return page

    async def commit(self, *writes: Write) -> None:
        """Commit writes that the caller may make; each is bound to the version that was checked."""

        async def act(tx: Transaction) -> None:
            for write in writes:
                tx.write(await self._checked(tx, write))

        await self._store.transact(act)

    async def _checked(self, tx: Transaction, write: Write) -> Write:
        if isinstance(write.expect, Fence):
            raise BadQueryError("fenced writes are for workers: commit them with the store itself")
        if write.kind == "create":
            self.check("create", new=_prepared(write))
            return write
        stored = await tx.get(write.schema.cls, *split_key(write.key))
        if isinstance(write.expect, Version) and stored is not None and stored.version != write.expect.number:
            raise VersionConflictError(f"{write.schema.name} was written since it was read")
        self._check_write(write, None if stored is None else stored.doc)
        # Without an expectation of its own the transaction gives it the version that was checked.
        by_version = isinstance(write.expect, Present) and stored is not None and write.kind != "check"
        expect = None if by_version else write.expect
        return Write(write.kind, write.schema, write.key, expect, write.prepared, write.changes)

    def _check_write(self, write: Write, old: Any) -> None:
        if old is None:
            if write.kind in ("put", "upsert"):
                self.check("create", new=_prepared(write))
            elif write.kind == "patch":
                raise NotFoundError(f"{write.schema.name} {write.key!r} does not exist")
        elif write.kind == "delete":
            self.check("delete", old=old)
        elif write.kind == "check":
            self.check("read", old=old)
        elif write.kind == "put":
            self.check("update", old=old, new=_prepared(write))
        else:
            assert write.changes is not None
            self.check("update", old=old, new=apply(write.schema, old, write.changes))


def area_of(schema: Schema[Any]) -> str:
    """The word for a collection in scopes: its last name, without the environment's prefix."""
    return schema.path.names[-1].removeprefix("{env}-")


def _prepared(write: Write) -> Any:
    assert write.prepared is not None
    return write.schema.document_of(write.prepared)
