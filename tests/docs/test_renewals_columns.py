"""The page says which columns a source must and may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.services.renewals.ingest.rows import columns_of
from holdfast.services.renewals.ingest.settings import RenewalsSettings
from holdfast.services.renewals.models import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "services" / "renewals.md").read_text()


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_on_the_page_where_it_belongs(table: str) -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{table}` | `id`")]
    _, _, must, may, _ = line.split("|")
    known, needed = columns_of(table)
    names = [word.strip(" `") for word in must.split(",")]
    assert tuple(names) == needed
    # A price's property is its unit's.
    derived = {"property_id"} if table == "unit_pricing" else set()
    assert {word.strip(" `") for word in may.split(",")} == known - set(needed) - derived


def test_every_setting_is_on_the_page() -> None:
    assert all(f"\n{name} = " in PAGE for name in RenewalsSettings.__struct_fields__)
