"""Taking the platform's tables in from CSV files: what fits is kept, what does not is named and set aside.

A row is known by its id, so the same files again change nothing, and changed rows are changed. Tables go
in the order in which they refer to one another; a row that refers to nothing there is set aside.
"""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.errors import AlreadyExistsError, HoldfastError, InvalidError
from holdfast.model import Document
from holdfast.services.renewals.models import (
    TABLES,
    LeaseRow,
    Property,
    PropertyName,
    Resident,
    Unit,
    UnitPricing,
)
from holdfast.services.renewals.rows import read_row
from holdfast.services.renewals.sampling import name_key
from holdfast.store import Snapshot, Store, Write, create, delete, put

BATCH: Final = 500
_OURS: Final = frozenset({"tenant_id", "price_key"})
_REFERS: Final[dict[str, dict[str, type[Document]]]] = {
    "unit_types": {"property_id": Property},
    "units": {"property_id": Property},
    "unit_pricing": {"unit_id": Unit},
    "residents": {"property_id": Property, "unit_id": Unit},
    "leases": {"property_id": Property, "resident_id": Resident},
    "resident_ledger": {"property_id": Property, "resident_id": Resident},
    "renewal_offers": {"property_id": Property, "resident_id": Resident, "lease_id": LeaseRow},
}


class BadRow(msgspec.Struct, frozen=True):
    """A row that was set aside; `row` is its line's number among the rows, the header being 1."""

    table: str
    row: int
    field: str
    reason: str
    values: dict[str, str]


class TableReport(msgspec.Struct):
    """What became of one file."""

    table: str
    rows: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    bad: list[BadRow] = []
    ignored_columns: list[str] = []


class _Line(msgspec.Struct, frozen=True):
    row: int
    values: dict[str, str]
    document: Document


class Import:
    """One import into one portfolio.

    Example: `async for report in Import(store.tenant("-")).folder(Path("export")): ...`
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tenant_id = store.tenant_id or "-"

    async def folder(self, folder: Path) -> AsyncIterator[TableReport]:
        """All tables that are there, in order; tells of each as it goes on, and once it is done."""
        files = {table: folder / f"{table}.csv" for table in TABLES}
        present = {table: path for table, path in files.items() if path.is_file()}
        if not present:
            raise InvalidError(f"{folder} holds none of {', '.join(f'{t}.csv' for t in TABLES)}", "folder")
        for table, path in present.items():
            async for report in self._table(table, path):
                yield report

    async def _table(self, table: str, path: Path) -> AsyncIterator[TableReport]:
        report = TableReport(table)
        seen: set[str] = set()
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                for batch in _batches(_rows(file, table, report)):
                    await self._take(
                        report, _fitting(batch, table, self._tenant_id, report=report, seen=seen)
                    )
                    yield report
        except (UnicodeDecodeError, csv.Error) as fault:
            raise InvalidError(f"{path.name}: {fault}; save it as CSV in UTF-8", table) from None
        report.bad.sort(key=lambda one: one.row)
        yield report

    async def _take(self, report: TableReport, lines: list[_Line]) -> None:
        lines = await self._with_parents(report, lines)
        cls = TABLES[report.table]
        found = await self._store.get_many(cls, [_id_of(line.document) for line in lines])
        changed: list[tuple[_Line, bool]] = []
        commits: list[Sequence[Write]] = []
        for line, stored in zip(lines, found, strict=True):
            if stored is not None and _same(stored.doc, line.document):
                report.unchanged += 1
                continue
            try:
                commits.append(_writes(line.document, stored))
                changed.append((line, stored is None))
            except HoldfastError as fault:
                _set_aside(report, line.row, line.values, fault)
        for (line, new), outcome in zip(changed, await self._store.settle(commits), strict=True):
            if isinstance(outcome, HoldfastError):
                _set_aside(report, line.row, line.values, _explained(outcome, line.document))
            elif new:
                report.created += 1
            else:
                report.updated += 1

    async def _with_parents(self, report: TableReport, lines: list[_Line]) -> list[_Line]:
        """Those whose references lead somewhere; a price learns its unit's property on the way."""
        for field, cls in _REFERS.get(report.table, {}).items():
            ids = list(dict.fromkeys(getattr(line.document, field) for line in lines))
            found = await self._store.get_many(cls, ids)
            there = {id: one.doc for id, one in zip(ids, found, strict=True) if one is not None}
            kept = []
            for line in lines:
                parent = there.get(getattr(line.document, field))
                if parent is None:
                    missing = f"there is no {field.removesuffix('_id')} {getattr(line.document, field)!r}"
                    _set_aside(report, line.row, line.values, InvalidError(missing, field))
                    continue
                if isinstance(line.document, UnitPricing) and isinstance(parent, Unit):
                    line.document.property_id = parent.property_id
                kept.append(line)
            lines = kept
        return lines


def _rows(file: Any, table: str, report: TableReport) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(file, restkey="", strict=True)
    header = reader.fieldnames or []
    fields = {f.name: f for f in msgspec.structs.fields(TABLES[table]) if f.name not in _OURS}
    needed = [f.name for f in fields.values() if f.required and not _is_derived(table, f.name)]
    missing = [name for name in needed if name not in header]
    if missing:
        raise InvalidError(f"{table}.csv lacks the column {missing[0]!r}", table)
    report.ignored_columns = [name for name in header if name not in fields]
    for row, values in enumerate(reader, 2):
        report.rows += 1
        yield row, {name: value or "" for name, value in values.items() if name in fields}


def _is_derived(table: str, name: str) -> bool:
    return table == "unit_pricing" and name == "property_id"


def _batches(
    rows: Iterator[tuple[int, dict[str, str]]],
) -> Iterator[list[tuple[int, dict[str, str]]]]:
    batch: list[tuple[int, dict[str, str]]] = []
    for one in rows:
        batch.append(one)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _fitting(
    batch: list[tuple[int, dict[str, str]]],
    table: str,
    tenant_id: str,
    *,
    report: TableReport,
    seen: set[str],
) -> list[_Line]:
    lines = []
    for row, values in batch:
        try:
            document = read_row(table, values, tenant_id)
            id = _id_of(document)
            if id in seen:
                raise InvalidError("an earlier row has this id", "id")
            # Everything a write would refuse is refused here, where the row is known.
            create(document)
        except HoldfastError as fault:
            _set_aside(report, row, values, fault)
        else:
            seen.add(id)
            lines.append(_Line(row, values, document))
    return lines


def _id_of(document: Document) -> str:
    if isinstance(document, UnitPricing):
        return f"{document.unit_id}_{document.effective_date.isoformat()}"
    return str(document.id)  # type: ignore[attr-defined]


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


def _set_aside(report: TableReport, row: int, values: dict[str, str], fault: HoldfastError) -> None:
    report.bad.append(BadRow(report.table, row, fault.path or "", fault.message, values))


def write_aside(folder: Path, bad: Sequence[BadRow]) -> list[Path]:
    """Bad rows as CSV files of their own, with the row's number and what is wrong, to mend and import."""
    made = []
    for table in dict.fromkeys(one.table for one in bad):
        rows = [one for one in bad if one.table == table]
        path = folder / f"{table}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = [
            "bad_row",
            "bad_field",
            "bad_reason",
            *dict.fromkeys(n for one in rows for n in one.values),
        ]
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            for one in rows:
                said = {"bad_row": one.row, "bad_field": one.field, "bad_reason": one.reason}
                writer.writerow({**one.values, **said})
        made.append(path)
    return made
