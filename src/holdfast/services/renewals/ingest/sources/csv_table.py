"""One table's rows as CSV, from wherever they come: the form in which all of them are taken in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import BinaryIO, NamedTuple, Protocol, TextIO

from holdfast.errors import InvalidError
from holdfast.services.renewals.ingest.rows import BEYOND, columns_of

# What is too long for a document is a bad row like others; the reader's own limit would end the import there.
csv.field_size_limit(1 << 24)


class TableRow(NamedTuple):
    """A row's place, by which a person finds it, and its text by column."""

    place: int | str
    values: dict[str, str]


class CsvTable:
    """A table that was read. A row's place is its number, the header being 1; in a database, its id.

    Rows of a database come in the order of their ids, as they are; what people typed into a file is taken
    without the blanks around it.
    """

    def __init__(
        self,
        table: str,
        file: BinaryIO,
        *,
        label: str,
        in_database: bool = False,
        digest: str = "",
        count: int = 0,
    ) -> None:
        self.table, self.label, self.in_database = table, label, in_database
        self.digest, self.count = digest, count
        self._file = file

    @property
    def ignored(self) -> list[str]:
        """Columns that are there and mean nothing here."""
        with self._text() as text:
            header = _header(csv.reader(text))
        known, _ = columns_of(self.table)
        return [name for name in header if name not in known]

    def rows(self) -> Iterator[TableRow]:
        """Every row, from the first; refuses a table without a column that is needed."""
        known, needed = columns_of(self.table)
        with self._text() as text:
            lines = csv.reader(text, strict=True)
            header = _header(lines)
            missing = [name for name in needed if name not in header]
            if missing:
                raise InvalidError(f"{self.label} lacks the column {missing[0]!r}", self.table)
            twice = [name for name in known if header.count(name) > 1]
            if twice:
                raise InvalidError(f"{self.label} has the column {min(twice)!r} twice", self.table)
            places = [(place, name) for place, name in enumerate(header) if name in known]
            for number, line in enumerate(filter(None, lines), 2):
                line += [""] * (len(header) - len(line))
                if self.in_database:
                    values = {name: line[place] for place, name in places}
                    yield TableRow(values["id"] or "without an id", values)
                else:
                    values = {name: line[place].strip() for place, name in places}
                    beyond = ",".join(line[len(header) :]).strip(", ")
                    yield TableRow(number, values | {BEYOND: beyond} if beyond else values)

    @contextmanager
    def _text(self) -> Iterator[TextIO]:
        self._file.seek(0)
        text = io.TextIOWrapper(self._file, encoding="utf-8-sig", newline="")
        try:
            yield text
        except (UnicodeDecodeError, csv.Error) as fault:
            raise InvalidError(f"{self.label}: {fault}; it must be CSV, in UTF-8", self.table) from None
        finally:
            # The file is its owner's, and is read more than once.
            text.detach()


def _header(lines: Iterator[list[str]]) -> list[str]:
    return [name.strip() for name in next(lines, [])]


class TableSource(Protocol):
    """Where the given tables come from.

    `name` is fit to be shown. What is gone from a `mirrored` source is gone for us too.
    """

    name: str
    mirrored: bool

    def read(self) -> AbstractAsyncContextManager[dict[str, CsvTable]]:
        """All of it as it is at one moment, in the order in which tables refer to one another."""

    async def check(self) -> None:
        """Raise what reading would meet first."""
