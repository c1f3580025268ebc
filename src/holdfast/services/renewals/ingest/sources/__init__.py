"""Where the given tables come from: a folder of CSV files, or an existing PostgreSQL schema.

folder of TABLE.csv ─────────────────────────────────┐
                                                     ├──► sheets, as at one moment ──► `importing`
schema ──► one read-only snapshot ──► nameless files ┘
"""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import ConfigError, InvalidError
from holdfast.services.renewals.ingest.sources.address import SCHEMES, parse_address
from holdfast.services.renewals.ingest.sources.csv_table import CsvTable, TableRow, TableSource
from holdfast.services.renewals.ingest.sources.folder import Folder


def open_source(place: str) -> TableSource:
    """The source that somebody named: a folder, or a URL.

    Example: `open_source("postgresql://rop@db/platform?schema=rop")`
    """
    scheme, joint, _ = place.partition("://")
    if not joint and place.partition(":")[0] in SCHEMES:
        parse_address(place)
    if not joint:
        if not Path(place).is_dir():
            raise InvalidError(f"the folder {place!r} does not exist", "source")
        return Folder(Path(place))
    if scheme not in SCHEMES:
        raise InvalidError(
            f"{scheme}:// is no source: give a folder, or postgresql://…?schema=NAME", "source"
        )
    parse_address(place)
    try:
        from holdfast.services.renewals.ingest.sources.database import Database
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{scheme} needs {missing.name}: pip install 'holdfast-kit[postgres]'") from None
    return Database(place)


__all__ = ["CsvTable", "Folder", "TableRow", "TableSource", "open_source", "parse_address"]
