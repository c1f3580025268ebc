"""What became of each table of an import, and the rows that were set aside."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.errors import HoldfastError
from holdfast.services.renewals.models import BadRow


class TableReport(msgspec.Struct):
    """What became of one table; `same` where it was read and found to be as it was, whole."""

    table: str
    rows: int = 0
    created: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    same: bool = False
    bad: list[BadRow] = []
    ignored_columns: list[str] = []

    def set_aside(self, place: int | str, values: Mapping[str, str], fault: HoldfastError) -> None:
        self.bad.append(BadRow(self.table, place, fault.path or "", fault.message, dict(values)))


def write_aside(folder: Path, bad: Sequence[BadRow]) -> list[Path]:
    """Bad rows as CSV files of their own, with the row's place and what is wrong, to mend and import."""
    made = []
    for table in dict.fromkeys(one.table for one in bad):
        rows = [one for one in bad if one.table == table]
        path = folder / f"{table}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        named = dict.fromkeys(name for one in rows for name in one.values)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["bad_row", "bad_field", "bad_reason", *named])
            writer.writeheader()
            for one in rows:
                said = {"bad_row": one.row, "bad_field": one.field, "bad_reason": one.reason}
                writer.writerow({**one.values, **said})
        made.append(path)
    return made
