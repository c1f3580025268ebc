"""What is known of where the given tables came from, and how old they are."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.kit import NO_TENANT
from holdfast.model import MEMBERS_READ, Document, document

BAD_KEPT = 50


class BadRow(msgspec.Struct, frozen=True):
    """A row that was set aside; `row` is its number in a file, the header being 1; in a database, its id."""

    table: str
    row: int | str
    field: str
    reason: str
    values: dict[str, str]


class TableState(msgspec.Struct, frozen=True):
    """A table as it was last read; without a `digest` it is compared row by row the next time."""

    rows: int
    bad: int = 0
    digest: str = ""


@document("renewal_sources/{tenant_id}", tenant="tenant_id", access=MEMBERS_READ)
class SourceState(Document):
    """Where a portfolio's tables come from. `read_at` is the moment that the data is of.

    It is written when everything that was read has been kept; `error` is why a later refresh failed. Of the
    bad rows the first are named, without their values.
    """

    tenant_id: str = NO_TENANT
    source: str
    read_at: datetime | None = None
    kept_at: datetime | None = None
    compared_at: datetime | None = None
    tables: dict[str, TableState] = {}
    bad_rows: list[BadRow] = []
    failed_at: datetime | None = None
    error: str = ""
