"""Several portfolios in one store: what one is called or holds is nobody else's business."""

from __future__ import annotations

from pathlib import Path

from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import Property
from holdfast.store import Query
from tests.services.renewals.calculation_fixtures import opened

NAMES = ("Mill House", "x" * 2_000, "Bell \x07 Court", "Nord/Süd", "__x__")


async def test_a_propertys_name_is_its_own_in_its_portfolio_alone(sqlite_url: str, tmp_path: Path) -> None:
    async with opened(sqlite_url) as store:
        for tenant in ("north", "south"):
            folder = tmp_path / tenant
            folder.mkdir()
            rows = [f'{tenant}-{n},"{name}"' for n, name in enumerate(NAMES)]
            again = f'{tenant}-again," mill   HOUSE "'
            (folder / "properties.csv").write_text("\n".join(["id,name", *rows, again]) + "\n")
            (report,) = await Import(store.tenant(tenant), Folder(folder)).run()
            assert report.created == len(NAMES)
            assert [(one.field, one.values["id"]) for one in report.bad] == [("name", f"{tenant}-again")]
        for tenant in ("north", "south"):
            assert await store.tenant(tenant).count(Query(Property).order_by("name")) == len(NAMES)
