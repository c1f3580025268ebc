"""A folder of CSV files, as many of the tables as are there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from holdfast.errors import InvalidError
from holdfast.services.renewals.ingest.sources.csv_table import CsvTable
from holdfast.services.renewals.models import TABLES


class Folder:
    """`TABLE.csv` files; a table or a row that is not in them stays as it is.

    Example: `await Import(store, Folder(Path("export"))).run()`
    """

    mirrored = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    async def check(self) -> None:
        async with self.read():
            pass

    @asynccontextmanager
    async def read(self) -> AsyncIterator[dict[str, CsvTable]]:
        files = {table: self.path / f"{table}.csv" for table in TABLES}
        there = {table: path for table, path in files.items() if path.is_file()}
        if not there:
            raise InvalidError(f"{self.path} holds none of {', '.join(f'{t}.csv' for t in TABLES)}", "folder")
        with ExitStack() as opened:
            yield {table: _sheet(table, path, opened) for table, path in there.items()}


def _sheet(table: str, path: Path, opened: ExitStack) -> CsvTable:
    try:
        file = opened.enter_context(path.open("rb"))
    except OSError as fault:
        raise InvalidError(f"{path} can't be read: {fault.strerror}; check its rights", "folder") from None
    return CsvTable(table, file, label=path.name)
