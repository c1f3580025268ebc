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
from holdfast.kit import NO_TENANT
from holdfast.model import Document
from holdfast.model.identity import check_id
from holdfast.model.limits import ID_BYTES_MAX
from holdfast.services.renewals.ingest.property_names import Found, Line, exchanges, writes_of
from holdfast.services.renewals.ingest.reports import TableReport
from holdfast.services.renewals.ingest.rows import key_of, read_row
from holdfast.services.renewals.ingest.sources import CsvTable, TableRow
from holdfast.services.renewals.models import TABLES, LeaseRow, Property, Resident, Unit, UnitPricing
from holdfast.store import Snapshot, Store, Write

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


class TableImport:
    """One table at work.

    A row that is as it was still refers to something, unless there may be `orphans`, whose parents are gone.

    Example: `report = await Taking(store, sheet, guard=lease.guard()).run(print)`
    """

    def __init__(self, store: Store, sheet: CsvTable, *, guard: Write, orphans: bool = False) -> None:
        self._store, self._sheet, self._guard = store, sheet, guard
        # A price changes with its unit's property, which is not in its row.
        self._ask_all = orphans or sheet.table == "unit_pricing"
        self._tenant_id = store.tenant_id or NO_TENANT
        self._seen: set[str] = set()
        self._unnamed: list[Line] = []
        self.report = TableReport(sheet.table)

    async def run(self, tell: Callable[[TableReport], None]) -> TableReport:
        """All rows; tells how far it is after every few hundred."""
        report = self.report
        report.ignored_columns = self._sheet.ignored
        for batch in batches(self._sheet.rows(), BATCH):
            report.rows += len(batch)
            await self._take(self._fitting(batch))
            tell(report)
        await self._rename()
        report.bad.sort(key=lambda one: one.row if isinstance(one.row, int) else 0)
        tell(report)
        return report

    def _fitting(self, batch: list[TableRow]) -> list[Line]:
        lines, key = [], ""
        for row in batch:
            try:
                document = read_row(self.report.table, row.values, self._tenant_id)
                key = key_of(document)
                check_id(key, "id", bytes_max=ID_BYTES_MAX)
                if key in self._seen:
                    raise InvalidError("an earlier row has this id", "id")
            except HoldfastError as fault:
                self.report.set_aside(*row, fault)
            else:
                self._seen.add(key)
                lines.append(Line(row, key, document))
        if self._sheet.in_database:
            # In the order of their ids, rows of one id are neighbours.
            self._seen = {key}
        return lines

    async def _take(self, lines: list[Line]) -> None:
        if self._ask_all:
            lines = await self._with_parents(lines)
        keys = [line.key for line in lines]
        found = dict(zip(keys, await self._store.get_many(TABLES[self.report.table], keys), strict=True))
        changed = [line for line in lines if not _same(found[line.key], line.document)]
        self.report.unchanged += len(lines) - len(changed)
        if changed:
            changed = changed if self._ask_all else await self._with_parents(changed)
            for line, refused in await self._keep([[line] for line in changed], found):
                if isinstance(refused, AlreadyExistsError) and isinstance(line.document, Property):
                    self._unnamed.append(line)
                else:
                    self.report.set_aside(*line.row, refused)

    async def _rename(self) -> None:
        """Once more those whose names were others': by now they may be free, or free by way of exchange."""
        if not self._unnamed:
            return
        keys = [line.key for line in self._unnamed]
        found = dict(zip(keys, await self._store.get_many(Property, keys), strict=True))
        for line, refused in await self._keep(exchanges(self._unnamed, found), found):
            self.report.set_aside(*line.row, _explained(refused, line.document))

    async def _keep(self, groups: Sequence[Sequence[Line]], found: Found) -> list[tuple[Line, HoldfastError]]:
        """Each group whole or not at all; gives the lines that were refused, and why."""
        sent: list[Sequence[Line]] = []
        commits: list[Sequence[Write]] = []
        bad: list[tuple[Line, HoldfastError]] = []
        for group in groups:
            try:
                commits.append(writes_of(group, found))
                sent.append(group)
            except HoldfastError as fault:
                bad += [(line, fault) for line in group]
        outcomes = await keep_all(self._store, self._guard, commits=commits)
        for group, refused in zip(sent, outcomes, strict=True):
            if refused is not None:
                bad += [(line, refused) for line in group]
                continue
            new = sum(found[line.key] is None for line in group)
            self.report.created += new
            self.report.updated += len(group) - new
        return bad

    async def _with_parents(self, lines: list[Line]) -> list[Line]:
        """Those whose references lead somewhere; a price gets its unit's property from the unit."""
        for field, cls in REFERS.get(self.report.table, {}).items():
            named = dict.fromkeys(getattr(line.document, field) for line in lines)
            ids = [id for id in named if _is_id(id)]
            found = await self._store.get_many(cls, ids)
            there = {id: one.doc for id, one in zip(ids, found, strict=True) if one is not None}
            lines = [line for line in lines if self._has_parent(line, field, there)]
        return lines

    def _has_parent(self, line: Line, field: str, there: dict[str, Any]) -> bool:
        id = getattr(line.document, field)
        parent = there.get(id)
        if parent is None:
            missing = InvalidError(f"there is no {field.removesuffix('_id')} {id!r}", field)
            self.report.set_aside(*line.row, missing)
        elif isinstance(line.document, UnitPricing):
            line.document.property_id, line.document.price_key = parent.property_id, line.key
        return parent is not None


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


def _same(stored: Snapshot[Any] | None, new: Document) -> bool:
    return stored is not None and msgspec.json.encode(stored.doc) == msgspec.json.encode(new)


def _explained(fault: HoldfastError, document: Document) -> HoldfastError:
    if isinstance(fault, AlreadyExistsError) and isinstance(document, Property):
        return InvalidError(f"another property is called {document.name!r}", "name")
    return fault
