"""The writes of rows, and of properties that take one another's names. Pure.

A property's name is held for it by a document of its own, in whose place no other can be made. Where two
swap, neither name is free until the other moves: so they move in one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.model import Document
from holdfast.services.renewals.domain.names import name_key
from holdfast.services.renewals.ingest.sources import TableRow
from holdfast.services.renewals.models import Property, PropertyName
from holdfast.store import Snapshot, Write, create, delete, put

# What is kept of each line by now, by its key.
Found: TypeAlias = Mapping[str, Snapshot[Any] | None]


class Line(msgspec.Struct, frozen=True):
    """A row that fits, and the document it stands for."""

    row: TableRow
    key: str
    document: Document


def writes_of(lines: Sequence[Line], found: Found) -> list[Write]:
    """What keeps these lines of one table together."""
    writes = [_kept(line.document, found[line.key]) for line in lines]
    return [*writes, *_names(lines, found)] if isinstance(lines[0].document, Property) else writes


def exchanges(lines: Sequence[Line], found: Found) -> list[list[Line]]:
    """Properties in groups: whoever takes a name stands with the one who gives it up."""
    giver = {_old(line, found): line for line in lines}
    group_of = {line.key: [line] for line in lines}
    for line in lines:
        other = giver.pop(_new(line), None)
        if other is not None and group_of[other.key] is not group_of[line.key]:
            joined = [*group_of[line.key], *group_of[other.key]]
            group_of |= {one.key: joined for one in joined}
    return list({id(group): group for group in group_of.values()}.values())


def _kept(document: Document, stored: Snapshot[Any] | None) -> Write:
    return create(document) if stored is None else put(document, stored.unchanged)


def _names(lines: Sequence[Line], found: Found) -> list[Write]:
    """What holds the names of these properties for them, and no longer those that they give up."""
    moved = [line for line in lines if _new(line) != _old(line, found)]
    given_up, taken = {_old(line, found) for line in moved}, {_new(line) for line in moved}
    writes = [put(_held(line)) if _new(line) in given_up else create(_held(line)) for line in moved]
    return [*writes, *(delete(PropertyName, key) for key in given_up - taken if key is not None)]


def _held(line: Line) -> PropertyName:
    document = line.document
    assert isinstance(document, Property)
    return PropertyName(name_key=_new(line), tenant_id=document.tenant_id, property_id=document.id)


def _new(line: Line) -> str:
    assert isinstance(line.document, Property)
    return name_key(line.document.name, line.document.tenant_id)


def _old(line: Line, found: Found) -> str | None:
    stored = found[line.key]
    return None if stored is None else name_key(stored.doc.name, stored.doc.tenant_id)
