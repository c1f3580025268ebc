"""The one place where surfaces ask whether a caller may: the model's rules, judged on what is stored."""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast.errors import BadQueryError, NotFoundError, VersionConflictError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import at_least, check_scope, refusal
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
    """A caller in front of a store handle. What is refused raises `ForbiddenError`, saying what it needs.

    Example:
        gate = Gate(store.tenant("acme"), caller)
        run = await gate.require("read", Run, "run-1")
        await gate.commit(patch(Run, "run-1", changes={"status": "cancelled"}))
    """

    def __init__(self, store: Store, caller: Caller) -> None:
        self._store = store
        self.caller = caller

    def check(self, action: Action, *, old: Document | None = None, new: Document | None = None) -> None:
        """Judge a document in hand: as it is (`old`), as it would be (`new`), or a change with both."""
        one = old if old is not None else new
        if one is None:
            raise BadQueryError("say which document: old, new or both")
        schema = schema_of(type(one))
        check_scope(self.caller, area_of(schema), action)
        if not permits(schema, self.caller, action=action, old=old, new=new):
            tenant_id = None if schema.tenant is None else schema.tenant.read(one)
            raise refusal(f"{action} of {schema.name}", schema.access.rules(action), self.caller, tenant_id)

    async def require(self, action: Action, cls: type[D], *ids: str) -> Snapshot[D]:
        """The stored document, if the caller may do this to it."""
        found = await self._store.get(cls, *ids)
        if found is None:
            raise NotFoundError(f"{schema_of(cls).name} {'/'.join(ids)!r} is not there")
        self.check(action, old=found.doc)
        return found

    def require_act(self, area: str, action: str, *, role: str, tenant_id: str = NO_TENANT) -> None:
        """Judge an act that is no document's: it needs at least this role, and a token its scope.

        Example: `gate.require_act("channels", "renew", role="admin")`
        """
        check_scope(self.caller, area, action)
        if not at_least(self.caller, role, tenant_id):
            raise refusal(f"{action} of {area}", (role, "service"), self.caller, tenant_id)

    async def query(self, query: Query[D]) -> QueryPage[D]:
        """One page, refused whole when it holds something the caller may not read: rules are no filters."""
        check_scope(self.caller, area_of(schema_of(query.cls)), "read")
        page = await self._store.query(query)
        for doc in page.docs:
            self.check("read", old=doc)
        return page

    async def commit(self, *writes: Write) -> None:
        """Commit what the caller may write; what was judged is what is written, or nothing is."""

        async def act(tx: Transaction) -> None:
            for write in writes:
                tx.write(await self._judged(tx, write))

        await self._store.transact(act)

    async def _judged(self, tx: Transaction, write: Write) -> Write:
        if isinstance(write.expect, Fence):
            raise BadQueryError("fenced writes are workers': commit them with the store itself")
        if write.kind == "create":
            self.check("create", new=_prepared(write))
            return write
        found = await tx.get(write.schema.cls, *split_key(write.key))
        if isinstance(write.expect, Version) and found is not None and found.version != write.expect.number:
            raise VersionConflictError(f"{write.schema.name} was written since it was read")
        self._judge(write, None if found is None else found.doc)
        # Without an expectation of its own the transaction gives it the version that was judged.
        judged = isinstance(write.expect, Present) and found is not None and write.kind != "check"
        expect = None if judged else write.expect
        return Write(write.kind, write.schema, write.key, expect, write.prepared, write.changes)

    def _judge(self, write: Write, old: Any) -> None:
        if old is None:
            if write.kind in ("put", "upsert"):
                self.check("create", new=_prepared(write))
            elif write.kind == "patch":
                raise NotFoundError(f"{write.schema.name} {write.key!r} is not there")
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
