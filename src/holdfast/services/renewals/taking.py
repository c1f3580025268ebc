"""Taking one table in: what fits is kept, what is as it was is left alone, what does not fit is set aside.

A row that refers to nothing there is set aside too. Every commit carries the guard of the import, so that
one that was taken over can't write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import (
    AlreadyExistsError,
    BadIdError,
    HoldfastError,
    InvalidError,
    LeaseLostError,
    RetryLaterError,
)
from holdfast.model import Document
from holdfast.model.identity import check_id
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.services.renewals.models import (
    TABLES,
    LeaseRow,
    Property,
    PropertyName,
    Resident,
    Unit,
    UnitPricing,
)
from holdfast.services.renewals.reports import TableReport
from holdfast.services.renewals.rows import key_of, read_row
from holdfast.services.renewals.sampling import name_key
from holdfast.services.renewals.sources import Row, Sheet
from holdfast.store import Snapshot, Store, Write, create, delete, put

T = TypeVar("T")
BATCH: Final = 400
REFERS: Final[dict[str, dict[str, type[Document]]]] = {
    "unit_types": {"property_id": Property},
    "units": {"property_id": Property},
    "unit_pricing": {"unit_id": Unit},
    "residents": {"property_id": Property, "unit_id": Unit},
    "leases": {"property_id": Property, "resident_id": Resident},
    "resident_ledger": {"property_id": Property, "resident_id": Resident},
    "renewal_offers": {"property_id": Property, "resident_id": Resident, "lease_id": LeaseRow},
}
# What says nothing about the row: the import ends here, and the next one goes on.
_OVER: Final = (LeaseLostError, RetryLaterError)


class _Line(msgspec.Struct, frozen=True):
    row: Row
    document: Document


class Taking:
    """One table at work.

    Example: `report = await Taking(store, sheet, guard=lease.guard()).run(print)`
    """

    def __init__(self, store: Store, sheet: Sheet, *, guard: Write) -> None:
        self._store, self._sheet, self._guard = store, sheet, guard
        self._tenant_id = store.tenant_id or "-"
        self._seen: set[str] = set()
        self.report = TableReport(sheet.table)

    async def run(self, tell: Callable[[TableReport], None]) -> TableReport:
        """All rows; tells how far it is after every few hundred."""
        report = self.report
        report.ignored_columns = self._sheet.ignored
        for batch in batches(self._sheet.rows(), BATCH):
            report.rows += len(batch)
            await self._take(await self._with_parents(self._fitting(batch)))
            tell(report)
        report.bad.sort(key=lambda one: one.row if isinstance(one.row, int) else 0)
        tell(report)
        return report

    def _fitting(self, batch: list[Row]) -> list[_Line]:
        lines, key = [], ""
        for row in batch:
            try:
                document = read_row(self.report.table, row.values, self._tenant_id)
                key = key_of(document)
                if key in self._seen:
                    raise InvalidError("an earlier row has this id", "id")
                # Everything a write would refuse is refused here, where the row is known.
                _writes(document, None)
            except HoldfastError as fault:
                self.report.set_aside(*row, fault)
            else:
                self._seen.add(key)
                lines.append(_Line(row, document))
        if self._sheet.in_database:
            # In the order of their ids, rows of one id are neighbours.
            self._seen = {key}
        return lines

    async def _with_parents(self, lines: list[_Line]) -> list[_Line]:
        """Those whose references lead somewhere; a price learns its unit's property on the way."""
        for field, cls in REFERS.get(self.report.table, {}).items():
            named = dict.fromkeys(getattr(line.document, field) for line in lines)
            ids = [id for id in named if _is_id(id)]
            found = await self._store.get_many(cls, ids)
            there = {id: one.doc for id, one in zip(ids, found, strict=True) if one is not None}
            lines = [line for line in lines if self._has_parent(line, field, there)]
        return lines

    def _has_parent(self, line: _Line, field: str, there: dict[str, Any]) -> bool:
        id = getattr(line.document, field)
        parent = there.get(id)
        if parent is None:
            missing = InvalidError(f"there is no {field.removesuffix('_id')} {id!r}", field)
            self.report.set_aside(*line.row, missing)
        elif isinstance(line.document, UnitPricing):
            line.document.property_id = parent.property_id
        return parent is not None

    async def _take(self, lines: list[_Line]) -> None:
        keys = [key_of(line.document) for line in lines]
        found = await self._store.get_many(TABLES[self.report.table], keys)
        changed = [
            (line, stored)
            for line, stored in zip(lines, found, strict=True)
            if stored is None or not _same(stored.doc, line.document)
        ]
        self.report.unchanged += len(lines) - len(changed)
        commits = [_writes(line.document, stored) for line, stored in changed]
        outcomes = await keep_all(self._store, self._guard, commits=commits)
        for (line, stored), fault in zip(changed, outcomes, strict=True):
            if fault is not None:
                self.report.set_aside(*line.row, _explained(fault, line.document))
            elif stored is None:
                self.report.created += 1
            else:
                self.report.updated += 1


async def keep_all(
    store: Store, guard: Write, *, commits: Sequence[Sequence[Write]]
) -> list[HoldfastError | None]:
    """Why each commit was refused, or None: all go in one where nothing is wrong, else one by one."""
    together = [guard, *(write for writes in commits for write in writes)]
    if 1 < len(together) <= store.capabilities.writes_max:
        try:
            await store.commit(*together)
        except _OVER:
            raise
        except HoldfastError:
            pass
        else:
            return [None] * len(commits)
    outcomes = await store.settle([[guard, *writes] for writes in commits])
    faults = [one if isinstance(one, HoldfastError) else None for one in outcomes]
    for fault in faults:
        if isinstance(fault, _OVER):
            raise fault
    return faults


def _is_id(text: str) -> bool:
    """Whether anything can have this id; what refers to nothing must not stop the rows beside it."""
    try:
        check_id(text, "id", bytes_max=ID_BYTES_MAX)
    except BadIdError:
        return False
    return True


def batches(things: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of so many; the last may be shorter."""
    while batch := list(islice(things, size)):
        yield batch


def _same(stored: Document, new: Document) -> bool:
    return msgspec.json.encode(stored) == msgspec.json.encode(new)


def _writes(document: Document, stored: Snapshot[Any] | None) -> list[Write]:
    if not isinstance(document, Property):
        return [create(document) if stored is None else put(document, stored.unchanged)]
    held = PropertyName(
        name_key=name_key(document.name), tenant_id=document.tenant_id, property_id=document.id
    )
    if stored is None:
        return [create(document), create(held)]
    renamed = name_key(stored.doc.name) != name_key(document.name)
    moved = [create(held), delete(PropertyName, name_key(stored.doc.name))] if renamed else []
    return [put(document, stored.unchanged), *moved]


def _explained(fault: HoldfastError, document: Document) -> HoldfastError:
    if isinstance(fault, AlreadyExistsError) and isinstance(document, Property):
        return InvalidError(f"another property is called {document.name!r}", "name")
    return fault
