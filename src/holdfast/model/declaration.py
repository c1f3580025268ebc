"""Declarations, and the fields that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import inspect as mi

from holdfast.errors import DeclarationError, InvalidError
from holdfast.model.access import SERVICE_ONLY, Access, Membership
from holdfast.model.claim import Claim
from holdfast.model.columns import Column, make_column
from holdfast.model.identity import CompositeId, Identity, ProvidedId
from holdfast.model.index import Across, Index, IndexField, ResolvedIndex
from holdfast.model.lifecycle import Lifecycle
from holdfast.model.path import parse_path
from holdfast.model.retention import Retention

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the `@document` decorator."""

    path: str
    id: Identity
    tenant: str | None
    indexes: tuple[Index, ...]
    lifecycle: Lifecycle | None
    immutable: tuple[str, ...]
    append_only: bool
    retention: Retention | None
    access: Access | None
    membership: Membership | None
    claim: Claim | None
    path_only: tuple[str, ...]
    all_columns: bool
    counters: tuple[str, ...]
    columns: tuple[str, ...]
    upgrades: Mapping[int, Upgrade]


class FieldResolver:
    """Resolves the names of a declaration to fields and columns; refuses unknown or unsuitable ones.

    Columns are in the order in which they are first named.
    """

    def __init__(self, declared: Declaration, fields: Mapping[str, mi.Field], where: str) -> None:
        self._declared, self._fields, self._where = declared, fields, where
        self.path = parse_path(declared.path)
        self.columns: dict[str, Column] = {}
        self.tenant = self.column(declared.tenant) if declared.tenant else None
        self.tenant_is_parent = declared.tenant is not None and self.path.parameters[:-1] == (
            declared.tenant,
        )

    def column(self, path: str) -> Column:
        column = self.columns.get(path)
        if column is None:
            try:
                column = make_column(path, self._fields, self._where)
            except InvalidError as fault:
                raise DeclarationError(fault.message, path) from None
            self.columns[path] = column
        return column

    def _known(self, name: str) -> str:
        if name not in self._fields:
            raise DeclarationError(f"{self._where}: no field {name!r}", name)
        return name

    def immutable(self) -> tuple[str, ...]:
        """Return the fields that never change; the tenant is one of them."""
        tenant = (self._declared.tenant,) if self._declared.tenant else ()
        return tuple(dict.fromkeys(self._known(name) for name in (*self._declared.immutable, *tenant)))

    def check(self) -> None:
        access = self._declared.access or SERVICE_ONLY
        named = [word[5:] for word in sorted(access.words) if word.startswith("self:")]
        for name in (*self.path.parameters, *self._declared.path_only, *named):
            self._known(name)
        if self._declared.membership:
            self._check_membership(self._declared.membership)
        for field in self._fields.values():
            if field.encode_name.startswith("_"):
                raise DeclarationError(f"{self._where}: stored names can't begin with '_'", field.name)

    def _check_membership(self, membership: Membership) -> None:
        for name in (membership.role, *membership.when):
            self._known(name)
        identity, pair = self._declared.id, (membership.user, membership.tenant)
        composite = isinstance(identity, CompositeId) and identity.fields == pair
        single = isinstance(identity, ProvidedId) and self.path.parameters == (membership.user,)
        if not (composite or single) or self.path.nested:
            raise DeclarationError(
                f"{self._where}: a membership is at the top level, with "
                f'id=CompositeId("{membership.user}", "{membership.tenant}") or the user as its id'
            )

    def indexes(self) -> tuple[ResolvedIndex, ...]:
        unique = dict.fromkeys(self._normalized(index) for index in self._declared.indexes)
        if self._declared.retention:
            wanted = self._retention_index(self._declared.retention)
            if not any(_finds_as(index, wanted) for index in unique):
                unique[wanted] = None
        return tuple(self._resolve(index) for index in unique)

    def _retention_index(self, retention: Retention) -> Index:
        """Return the index that finds what is past its retention; what has no end yet costs no entry."""
        names = (*sorted(retention.when), retention.field)
        *_, end = [self.column(name) for name in names]
        across: Across = "tenants" if self.tenant or self.path.nested else "nothing"
        sparse = retention.field if end.nullable and end.kind != "open" else ""
        return self._normalized(Index(*names, across=across, sparse=sparse))

    def _normalized(self, index: Index) -> Index:
        """Drop an `across` without effect, so that equal indexes are one."""
        if index.across == "tenants" and self.tenant is None:
            return self._normalized(Index(*index.fields, across="parents", sparse=index.sparse))
        if index.across == "parents" and (not self.path.nested or self.tenant_is_parent):
            return Index(*index.fields, sparse=index.sparse)
        return index

    def _resolve(self, index: Index) -> ResolvedIndex:
        fields = []
        for word in index.fields:
            column = self.column(word.lstrip("-").removesuffix("[]"))
            member = word.endswith("[]")
            if member != (column.kind == "list"):
                raise DeclarationError(f"{self._where}: {index}: '[]' marks a list field, and only that")
            if self.tenant and column is self.tenant:
                raise DeclarationError(f"{self._where}: {index}: the tenant is in every index already")
            fields.append(IndexField(column, word.startswith("-"), member))
        parts = [f"{f.column.stored}{'_desc' if f.descending else ''}" for f in fields] or ["all"]
        suffix = "" if index.across == "nothing" else f"_across_{index.across}"
        sparse = self.column(index.sparse) if index.sparse else None
        if sparse is not None:
            if sparse.kind == "open" or any(field.member for field in fields):
                raise DeclarationError(f"{self._where}: {index}: sparse is for a field of one type, no lists")
            # A name of its own: processes of releases in which it was complete still use that one.
            suffix += f"_with_{sparse.stored}"
        name = "_".join(parts).replace(".", "_") + suffix
        return ResolvedIndex(name, tuple(fields), index.across, index, sparse)

    def claim_columns(self) -> tuple[Column, ...]:
        """Return the columns that a claim changes: due time, fence, owner, state."""
        claim = self._declared.claim
        if claim is None:
            return ()
        names = [claim.due, claim.fence, *filter(None, [claim.owner]), *(claim.state or ())[:1]]
        if claim.lane:
            lane = self.column(claim.lane)
            if lane.kind != "text" or lane.nullable:
                raise DeclarationError(f"{self._where}: a claim's lane is a field of type str", lane.path)
        columns = tuple(self.column(name) for name in names)
        if columns[0].kind != "time" or not columns[0].nullable or columns[1].kind != "integer":
            raise DeclarationError(f"{self._where}: a claim needs `due: datetime | None` and `fence: int`")
        return columns

    def add_columns(self) -> None:
        """Give each counter its column, and each field that is declared to have one."""
        for name in self._declared.counters:
            if self.column(name).kind != "integer" or self.column(name).nullable:
                raise DeclarationError(f"{self._where}: a counter is a field of type int", name)
        for name in self._declared.columns:
            if self.column(name).kind == "list":
                raise DeclarationError(f"{self._where}: a list has no column; index its items", name)

    def never_empty(self) -> tuple[Column, ...]:
        """Return the columns that can't be empty: the tenant and the lane."""
        claim = self._declared.claim
        lane = self.column(claim.lane) if claim and claim.lane else None
        return tuple(dict.fromkeys(column for column in (self.tenant, lane) if column is not None))


def _finds_as(index: Index, wanted: Index) -> bool:
    """Whether an index serves a retention's query: equalities in any order, its field in any direction."""
    names, asked = ([word.lstrip("-") for word in one.fields] for one in (index, wanted))
    same = names[-1:] == asked[-1:] and set(names[:-1]) == set(asked[:-1])
    return same and index.across == wanted.across and index.sparse in ("", asked[-1])
