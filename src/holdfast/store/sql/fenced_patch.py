"""Changes that can be judged without a look at the document they are made to.

A patch under a fencing number that sets whole fields needs nothing of the old document: whether it may
be made is a matter of a few columns (the fence, the tenant, the state), and what it changes can be laid
over the old JSON when the document is next read. So an SQL engine makes many of them in one statement,
reading nothing. Whatever is not that plain, or finds its conditions unmet, goes the way of `decide`, which
says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from holdfast.errors import HoldfastError
from holdfast.model.columns import Column, enum_values
from holdfast.model.limits import DOCUMENT_BYTES_MAX
from holdfast.model.schema import Schema, values_reader
from holdfast.store.commit import Commit, Fence, Write
from holdfast.store.transforms import TRANSFORMS

# What is laid over a document's JSON is at most this long, and the JSON under it at most so long that
# both together can't come near the limit of a document.
LAID_OVER_BYTES_MAX: Final = 32_768
UNDER_BYTES_MAX: Final = DOCUMENT_BYTES_MAX // 4 - LAID_OVER_BYTES_MAX

_ENCODE: Final = msgspec.json.Encoder().encode
_ODD: Final = frozenset((*TRANSFORMS, UnsetType))
_FAULTS: Final = (HoldfastError, msgspec.ValidationError, TypeError, AttributeError, UnicodeEncodeError)


class Group:
    """Amendments that one statement can make: of the same fields, legal from the same states."""

    __slots__ = ("columns", "schema", "states")

    def __init__(
        self, schema: Schema[Any], columns: tuple[Column, ...], states: tuple[str, ...] | None
    ) -> None:
        self.schema, self.columns, self.states = schema, columns, states


class FencedPatch(msgspec.Struct, frozen=True, gc=False):
    """One of them: the columns' new values, and the JSON of the changed fields."""

    group: Group
    key: str
    fence: int
    values: tuple[Any, ...]
    body: bytes


class _Plan:
    """How patches of one set of fields become amendments."""

    def __init__(self, schema: Schema[Any], names: tuple[str, ...]) -> None:
        types = {field.name: field.type for field in msgspec.structs.fields(schema.cls)}
        stored = {name: schema.fields[name].encode_name for name in names}
        self._struct = msgspec.defstruct("Amended", [(n, types[n]) for n in names], rename=stored)
        self._decode = msgspec.json.Decoder(self._struct).decode
        self._checks = [check for check in schema.checks if check[0] in stored]
        self._schema = schema
        self._columns = tuple(c for c in schema.columns if c.path in stored)
        self._values = values_reader(self._columns)
        self._state = schema.state if schema.state in self._columns else None
        self._groups: dict[str | None, Group] = {}

    def amend(self, key: str, fence: int, changes: Mapping[str, Any]) -> FencedPatch | None:
        made = self._struct(**changes)
        for name, stored, check in self._checks:
            old = getattr(made, name)
            if (new := check(old, stored)) is not old:
                setattr(made, name, new)
        body = _ENCODE(made)
        whole = self._decode(body)
        if len(body) > LAID_OVER_BYTES_MAX or b"\\u0000" in body:
            return None
        return FencedPatch(self._group(whole), key, fence, self._values(whole), body)

    def _group(self, whole: Any) -> Group:
        state = self._state.read(whole) if self._state else None
        group = self._groups.get(state)
        if group is None:
            group = self._groups[state] = Group(self._schema, self._columns, self._states_before(state))
        return group

    def _states_before(self, state: str | None) -> tuple[str, ...] | None:
        lifecycle = self._schema.lifecycle
        if state is None or lifecycle is None:
            return None
        return (state, *sorted(s for s, to in lifecycle.moves.items() if state in to and s != state))


_plans: dict[tuple[Schema[Any], tuple[str, ...]], _Plan | None] = {}
_PLANS_MAX: Final = 1_000


def fenced_patch(write: Write) -> FencedPatch | None:
    """The write as an amendment, or None where `decide` must see the document first."""
    if write.kind != "patch" or type(write.expect) is not Fence or write.changes is None:
        return None
    names = tuple(write.changes)
    try:
        plan = _plans[write.schema, names]
    except KeyError:
        plan = _plan(write.schema, names)
    if plan is None or not _ODD.isdisjoint(map(type, write.changes.values())):
        return None
    try:
        return plan.amend(write.key, write.expect.number, write.changes)
    except _FAULTS:
        return None


def _plan(schema: Schema[Any], names: tuple[str, ...]) -> _Plan | None:
    if len(_plans) >= _PLANS_MAX:
        _plans.clear()
    plan = _plans[schema, names] = _Plan(schema, names) if _may_amend(schema, names) else None
    return plan


def _may_amend(schema: Schema[Any], names: tuple[str, ...]) -> bool:
    claim = schema.claim
    if claim is None or not names or schema.append_only or schema.declared.upgrades:
        return False
    if any(index.member for index in schema.indexes) or any(name not in schema.fields for name in names):
        return False
    looked_at = {word[5:] for word in schema.access.words if word.startswith("self:")}
    fixed = {*schema.path.parameters, *schema.immutable, claim.fence, claim.lane, *looked_at}
    if not fixed.isdisjoint(names):
        return False
    inside = any("." in c.path and c.path.partition(".")[0] in names for c in schema.columns)
    return not inside and all(_steady(schema, c) for c in schema.columns if c.path in names)


def _steady(schema: Schema[Any], column: Column) -> bool:
    """Whether a new value leaves an index entry's size as it was, near enough."""
    if column.kind in ("open", "list", "bytes"):
        return False
    if column.kind != "text" or not any(f.column is column for i in schema.indexes for f in i.fields):
        return True
    return enum_values(schema.fields[column.path].type) is not None


def uncontended(commits: Iterable[Commit]) -> set[tuple[Schema[Any], str]]:
    """The documents that only one write of these commits touches: their order is nobody's concern."""
    once: set[tuple[Schema[Any], str]] = set()
    seen: set[tuple[Schema[Any], str]] = set()
    for commit in commits:
        for write in commit.writes:
            place = (write.schema, write.key)
            (once.discard if place in seen else once.add)(place)
            seen.add(place)
    return once


def merge_json(body: Any, amended: Any) -> Any:
    """A document's JSON with what was amended since: of a name that comes twice, readers take the last."""
    if amended is None:
        return body
    if len(body) <= 2:
        return amended
    return body[:-1] + ("," if isinstance(body, str) else b",") + amended[1:]
