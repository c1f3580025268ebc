"""Patches that need no look at the document they change.

A patch under a fencing number that sets complete fields depends on a few columns only (fence, tenant,
state), and its changes can be appended to the stored JSON when the document is next read. So an SQL engine
makes many of them in one statement, reading nothing. Any other patch, and one whose conditions do not
hold, goes through `decide`, which gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from holdfast.errors import HoldfastError
from holdfast.model.columns import Column, enum_values
from holdfast.model.limits import DOCUMENT_BYTES_MAX
from holdfast.model.schema import Schema, values_reader
from holdfast.store.commit import Fence, Write
from holdfast.store.sql.dialect import Dialect, quote
from holdfast.store.sql.tables import BODY, PATCH
from holdfast.store.transforms import TRANSFORMS

# A patch and the JSON under it are so short that together they can't reach the limit of a document.
PATCH_BYTES_MAX: Final = 32_768
PATCHED_BODY_BYTES_MAX: Final = DOCUMENT_BYTES_MAX // 4 - PATCH_BYTES_MAX

_ENCODE: Final = msgspec.json.Encoder().encode
_NOT_PLAIN: Final = frozenset((*TRANSFORMS, UnsetType))
_FAULTS: Final = (HoldfastError, msgspec.ValidationError, TypeError, AttributeError, UnicodeEncodeError)
_PLANS_MAX: Final = 1_000


class PatchGroup:
    """What one statement can make: patches of the same fields, legal from the same states."""

    __slots__ = ("columns", "schema", "states")

    def __init__(
        self, schema: Schema[Any], columns: tuple[Column, ...], states: tuple[str, ...] | None
    ) -> None:
        self.schema, self.columns, self.states = schema, columns, states


class FencedPatch(msgspec.Struct, frozen=True, gc=False):
    """One patch: the columns' new values, and the JSON of the changed fields."""

    group: PatchGroup
    key: str
    fence: int
    values: tuple[Any, ...]
    body: bytes


class _PatchPlan:
    """Turns patches of one set of fields into fenced patches."""

    def __init__(self, schema: Schema[Any], names: tuple[str, ...]) -> None:
        types = {field.name: field.type for field in msgspec.structs.fields(schema.cls)}
        stored = {name: schema.fields[name].encode_name for name in names}
        self._struct = msgspec.defstruct("PatchedFields", [(n, types[n]) for n in names], rename=stored)
        self._decode = msgspec.json.Decoder(self._struct).decode
        self._checks = schema.checks.only(stored)
        self._schema = schema
        self._columns = tuple(c for c in schema.columns if c.path in stored)
        self._values = values_reader(self._columns)
        self._state = schema.state if schema.state in self._columns else None
        self._groups: dict[str | None, PatchGroup] = {}

    def patch(self, key: str, fence: int, changes: Mapping[str, Any]) -> FencedPatch | None:
        fields = self._struct(**changes)
        for name, value in (self._checks.changes(fields) or {}).items():
            setattr(fields, name, value)
        body = _ENCODE(fields)
        decoded = self._decode(body)
        if len(body) > PATCH_BYTES_MAX or b"\\u0000" in body:
            return None
        return FencedPatch(self._group(decoded), key, fence, self._values(decoded), body)

    def _group(self, fields: Any) -> PatchGroup:
        state = self._state.read(fields) if self._state else None
        group = self._groups.get(state)
        if group is None:
            group = self._groups[state] = PatchGroup(self._schema, self._columns, self._sources(state))
        return group

    def _sources(self, state: str | None) -> tuple[str, ...] | None:
        """Return the states from which a document may come to this one."""
        lifecycle = self._schema.lifecycle
        if state is None or lifecycle is None:
            return None
        return (state, *sorted(s for s, to in lifecycle.moves.items() if state in to and s != state))


_plans: dict[tuple[Schema[Any], tuple[str, ...]], _PatchPlan | None] = {}


def fenced_patch(write: Write) -> FencedPatch | None:
    """Return the write as a fenced patch, or None where `decide` must see the document first."""
    if write.kind != "patch" or type(write.expect) is not Fence or write.changes is None:
        return None
    names = tuple(write.changes)
    try:
        plan = _plans[write.schema, names]
    except KeyError:
        if len(_plans) >= _PLANS_MAX:
            _plans.clear()
        plan = _PatchPlan(write.schema, names) if _patchable(write.schema, names) else None
        _plans[write.schema, names] = plan
    if plan is None or not _NOT_PLAIN.isdisjoint(map(type, write.changes.values())):
        return None
    try:
        return plan.patch(write.key, write.expect.number, write.changes)
    except _FAULTS:
        return None


def patch_conditions(group: PatchGroup, table: str, dialect: Dialect) -> list[str]:
    """Return what must hold of a row, beside its fence and tenant, for a patch of this group."""
    body = f"{table}.{quote(BODY)}"
    conditions = [
        f"{table}.{quote(PATCH)} IS NULL",
        f"{dialect.body_bytes(body)} <= {PATCHED_BODY_BYTES_MAX}",
    ]
    if group.states is not None and group.schema.state is not None:
        states = ", ".join("'" + state.replace("'", "''") + "'" for state in group.states)
        conditions.append(f"{table}.{quote(group.schema.state.stored)} IN ({states})")
    return conditions


def _patchable(schema: Schema[Any], names: tuple[str, ...]) -> bool:
    claim = schema.claim
    if claim is None or not names or schema.append_only or schema.declared.upgrades:
        return False
    if any(index.member for index in schema.indexes) or any(name not in schema.fields for name in names):
        return False
    in_rules = {word[5:] for word in schema.access.words if word.startswith("self:")}
    fixed = {*schema.path.parameters, *schema.immutable, claim.fence, claim.lane, *in_rules}
    if not fixed.isdisjoint(names):
        return False
    nested = any("." in c.path and c.path.partition(".")[0] in names for c in schema.columns)
    return not nested and all(_fixed_size(schema, c) for c in schema.columns if c.path in names)


def _fixed_size(schema: Schema[Any], column: Column) -> bool:
    """Whether a new value can't make an index entry much longer."""
    if column.kind in ("open", "list", "bytes"):
        return False
    if column.kind != "text" or not any(f.column is column for i in schema.indexes for f in i.fields):
        return True
    return enum_values(schema.fields[column.path].type) is not None
