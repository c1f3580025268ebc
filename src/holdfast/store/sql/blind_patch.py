"""Patches that need no look at the document they change.

A patch that sets complete fields to plain values depends on a few columns only (tenant, state, and the fence
or version it expects), and its changes can be appended to the stored JSON when the document is next read. So
an SQL engine makes many of them in one statement, reading nothing. Any other patch, and one whose conditions
do not hold, goes through `decide`, which gives the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, repeat, starmap
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from holdfast.errors import HoldfastError
from holdfast.model.columns import Column, enum_values
from holdfast.model.limits import DOCUMENT_BYTES_MAX, INTEGER_MAX
from holdfast.model.schema import Schema, values_reader
from holdfast.store.commit import Fence, Present, Version, Write
from holdfast.store.commit_batch import PatchBatch
from holdfast.store.sql.dialect import Dialect, quote
from holdfast.store.sql.tables import BODY, PATCH, VERSION
from holdfast.store.transforms import TRANSFORMS

# Patches and the JSON under them are so short that together they can't reach the limit of a document.
PATCH_BYTES_MAX: Final = 32_768
# Every read parses the patch, too. So the patch after a longer one is decided, which rewrites the document,
# and so is a longer one without a fence, whose document is likely to be read again.
PENDING_BYTES_MAX: Final = 2_048
PATCHED_BODY_BYTES_MAX: Final = DOCUMENT_BYTES_MAX // 4 - PATCH_BYTES_MAX - PENDING_BYTES_MAX

_ENCODE: Final = msgspec.json.Encoder().encode
_NOT_PLAIN: Final = frozenset((*TRANSFORMS, UnsetType))
_EXPECTED: Final = frozenset((type(None), Present, Fence, Version))
_FAULTS: Final = (HoldfastError, msgspec.ValidationError, TypeError, AttributeError, UnicodeEncodeError)
_PLANS_MAX: Final = 1_000
_NULL: Final = b"\\u0000"


class PatchGroup:
    """What one statement can make: patches of the same fields, legal from the same states.

    `guard` is the column that must have the number which each patch expects, None where they expect none.
    """

    __slots__ = ("columns", "guard", "names", "schema", "states")

    def __init__(
        self,
        schema: Schema[Any],
        columns: tuple[Column, ...],
        *,
        names: tuple[str, ...],
        guard: str | None,
        states: tuple[str, ...] | None,
    ) -> None:
        self.schema, self.columns, self.names = schema, columns, names
        self.guard, self.states = guard, states


class BlindPatch(msgspec.Struct, frozen=True, gc=False):
    """One patch: the number it expects, the columns' new values, and the JSON of the changed fields."""

    group: PatchGroup
    key: str
    expected: tuple[int, ...]  # empty where the group has no guard
    values: tuple[Any, ...]
    body: bytes


class _PatchPlan:
    """Turns patches of one set of fields into blind patches."""

    def __init__(self, schema: Schema[Any], names: tuple[str, ...]) -> None:
        types = {field.name: field.type for field in msgspec.structs.fields(schema.cls)}
        stored = {name: schema.fields[name].encode_name for name in names}
        self._struct = msgspec.defstruct("PatchedFields", [(n, types[n]) for n in names], rename=stored)
        self._decode = msgspec.json.Decoder(self._struct).decode
        self._checks = schema.checks.only(stored)
        self._schema, self._names = schema, tuple(stored.values())
        self._columns = tuple(c for c in schema.columns if c.path in stored)
        self._values = values_reader(self._columns)
        self._state = schema.state if schema.state in self._columns else None
        self._states = schema.lifecycle.states if schema.lifecycle else frozenset()
        self._groups: dict[tuple[Any, str | None], PatchGroup] = {}

    def patch(self, write: Write) -> BlindPatch | None:
        assert write.changes is not None
        fields = self._struct(**write.changes)
        for name, value in (self._checks.changes(fields) or {}).items():
            setattr(fields, name, value)
        body = _ENCODE(fields)
        return self._encoded(write, body, self._decode(body))

    def patch_all(
        self,
        keys: Sequence[str],
        values: Sequence[Iterable[Any]],
        *,
        guards: Iterable[str | None],
        expected: Iterable[tuple[int, ...]],
        bytes_max: int,
    ) -> list[BlindPatch] | None:
        """Make many patches, each step for all of them; None where one of them has to be looked at.

        `values` are in the order of the names.
        """
        if not _NOT_PLAIN.isdisjoint(set(map(type, chain.from_iterable(values)))):
            return None
        fields = list(starmap(self._struct, values))
        if not self._checks.change_none(fields):
            return None
        bodies = list(map(_ENCODE, fields))
        decoded = list(map(self._decode, bodies))
        states = [None] * len(keys) if self._state is None else list(map(self._state.read, decoded))
        if max(map(len, bodies)) > bytes_max or not self._are_states(states) or _NULL in b"".join(bodies):
            return None
        groups = map(self._group, states, guards)
        return list(map(BlindPatch, groups, keys, expected, map(self._values, decoded), bodies))

    def _encoded(self, write: Write, body: bytes, decoded: Any) -> BlindPatch | None:
        guard, expected = _guard(write)
        state = self._state.read(decoded) if self._state else None
        if len(body) > _bytes_max(type(write.expect)) or _NULL in body or not self._are_states((state,)):
            return None
        return BlindPatch(self._group(state, guard), write.key, expected, self._values(decoded), body)

    def _are_states(self, states: Iterable[Any]) -> bool:
        return self._state is None or self._states.issuperset(states)

    def _group(self, state: str | None, guard: str | None) -> PatchGroup:
        group = self._groups.get((state, guard))
        if group is None:
            group = self._groups[state, guard] = PatchGroup(
                self._schema, self._columns, names=self._names, guard=guard, states=self._sources(state)
            )
        return group

    def _sources(self, state: str | None) -> tuple[str, ...] | None:
        """Return the states from which a document may come to this one, None where the state stays."""
        lifecycle = self._schema.lifecycle
        if state is None or lifecycle is None:
            return None
        return (state, *sorted(s for s, to in lifecycle.moves.items() if state in to and s != state))


_plans: dict[tuple[Schema[Any], tuple[str, ...]], _PatchPlan | None] = {}


def blind_patch(write: Write) -> BlindPatch | None:
    """Return the write as a blind patch, or None where `decide` must see the document first."""
    plan = _plan(write)
    if plan is None:
        return None
    try:
        return plan.patch(write)
    except _FAULTS:
        return None


def blind_patches(writes: Sequence[Write]) -> list[BlindPatch] | None:
    """Return writes of the same fields of one class as blind patches, None where one of them can't be one.

    What is not plain or not valid is left to `blind_patch`, which looks at each alone.
    """
    names = {tuple(write.changes or ()) for write in writes}
    if len(names) > 1 or len({write.schema for write in writes}) > 1 or not _are_patches(writes):
        return None
    plan = _plan_of(writes[0].schema, *names)
    if plan is None:
        return None
    try:
        guards, expected = zip(*map(_guard, writes), strict=True)
        return plan.patch_all(
            [write.key for write in writes],
            [write.changes.values() for write in writes if write.changes is not None],
            guards=guards, expected=expected,
            bytes_max=min(map(_bytes_max, {type(write.expect) for write in writes})),
        )  # fmt: skip
    except _FAULTS:
        return None


def blind_batch(batch: PatchBatch) -> list[BlindPatch] | None:
    """Return a batch of patches as blind patches, None where one of them can't be one."""
    plan = _plan_of(batch.schema, batch.names)
    if plan is None or not _are_fences(batch.fences):
        return None
    try:
        return plan.patch_all(
            batch.keys, batch.values, guards=repeat(batch.schema.claim_columns[1].stored),
            expected=[(fence,) for fence in batch.fences], bytes_max=_bytes_max(Fence),
        )  # fmt: skip
    except _FAULTS:
        return None


def _are_patches(writes: Iterable[Write]) -> bool:
    return {(write.kind, type(write.expect) in _EXPECTED) for write in writes} == {("patch", True)}


def _plan(write: Write) -> _PatchPlan | None:
    """Return what makes a blind patch of the write; None where no patch of these fields or values is one."""
    changes = write.changes
    if changes is None or not _are_patches((write,)):
        return None
    plan = _plan_of(write.schema, tuple(changes))
    return plan if plan is not None and _NOT_PLAIN.isdisjoint(map(type, changes.values())) else None


def _plan_of(schema: Schema[Any], names: tuple[str, ...]) -> _PatchPlan | None:
    """Return what makes patches of these fields; None where no patch of them is blind."""
    try:
        return _plans[schema, names]
    except KeyError:
        if len(_plans) >= _PLANS_MAX:
            _plans.clear()
        plan = _plans[schema, names] = _PatchPlan(schema, names) if _patchable(schema, names) else None
        return plan


def _bytes_max(expect: type) -> int:
    """Return how long a patch may be that expects this."""
    return PATCH_BYTES_MAX if expect is Fence else PENDING_BYTES_MAX


def _guard(write: Write) -> tuple[str | None, tuple[int, ...]]:
    """Return the column that must have a number, and the number; TypeError where no row can have it."""
    expect = write.expect
    if not isinstance(expect, (Fence, Version)):
        return None, ()
    if not _are_fences((expect.number,)):
        raise TypeError("not a number of a fence or version")
    if isinstance(expect, Version):
        return VERSION, (expect.number,)
    if write.schema.claim is None:
        raise TypeError("no claim, so no fence")
    return write.schema.claim_columns[1].stored, (expect.number,)


def _are_fences(numbers: Collection[int]) -> bool:
    """Whether rows can have these numbers."""
    return set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) <= INTEGER_MAX


def patch_conditions(group: PatchGroup, table: str, dialect: Dialect) -> list[str]:
    """Return what must hold of a row, beside its guard and tenant, for a patch of this group."""
    body, patch = f"{table}.{quote(BODY)}", f"{table}.{quote(PATCH)}"
    conditions = [
        f"({patch} IS NULL OR {dialect.body_bytes(patch)} <= {PENDING_BYTES_MAX})",
        f"{dialect.body_bytes(body)} <= {PATCHED_BODY_BYTES_MAX}",
    ]
    if group.states is not None and group.schema.state is not None:
        states = ", ".join("'" + state.replace("'", "''") + "'" for state in group.states)
        conditions.append(f"{table}.{quote(group.schema.state.stored)} IN ({states})")
    return conditions


def _patchable(schema: Schema[Any], names: tuple[str, ...]) -> bool:
    claim = schema.claim
    if not names or schema.append_only or schema.declared.upgrades or not _mergeable(schema, names):
        return False
    if any(index.member for index in schema.indexes):
        return False
    in_rules = {word[5:] for word in schema.access.words if word.startswith("self:")}
    claimed = () if claim is None else (claim.fence, claim.lane)
    if not {*schema.path.parameters, *schema.immutable, *claimed, *in_rules}.isdisjoint(names):
        return False
    nested = any("." in c.path and c.path.partition(".")[0] in names for c in schema.columns)
    return not nested and all(_fixed_size(schema, c) for c in schema.columns if c.path in names)


def _mergeable(schema: Schema[Any], names: tuple[str, ...]) -> bool:
    """Whether these fields, appended to the stored JSON, make the document, valid if they are."""
    cls = schema.cls
    if hasattr(cls, "__post_init__") or cls.__struct_config__.array_like:
        return False
    # An earlier release derived columns from the body alone where no claim is declared.
    shown = schema.claim is not None or not schema.readable
    return shown and schema.fields.keys() >= {*names}


def _fixed_size(schema: Schema[Any], column: Column) -> bool:
    """Whether a new value can't make an index entry much longer."""
    if column.kind in ("open", "list", "bytes"):
        return False
    if column.kind != "text" or not any(f.column is column for i in schema.indexes for f in i.fields):
        return True
    return enum_values(schema.fields[column.path].type) is not None
