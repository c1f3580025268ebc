"""A batch of usage facts whose link to PostgreSQL breaks: each fact is counted, and none twice."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.app import open_store
from holdfast.kit.metering import METER_MODELS, Fact, Meter, Recorded, record_facts
from tests.faults.severing_proxy import Loss, severing_proxy

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def _facts(name: str, count: int) -> list[Fact]:
    return [
        Fact(tenant_id=f"t{n % 3}", name=f"{name}-{n}", metrics={"calls": 1}, at=NOON) for n in range(count)
    ]


@pytest.mark.parametrize("loss", ["request", "answer"])
@pytest.mark.parametrize("moment", [1, 2], ids=["read", "commit"])
async def test_a_batch_whose_link_breaks_is_counted_exactly_once(
    postgres_url: str, loss: Loss, moment: int
) -> None:
    async with severing_proxy(postgres_url) as (proxy, url):
        store = await open_store(f"{url}?writers=1", METER_MODELS.all)
        await store.migrate()
        everyone, seen = store.privileged(), 0
        assert await record_facts(everyone, _facts("warm", 20)) == Recorded(20, 0)

        def is_moment(data: bytes) -> bool:
            nonlocal seen
            seen += b"the-one-0" in data
            return seen == moment

        proxy.sever(loss, when=is_moment)
        assert await record_facts(everyone, _facts("the-one", 40)) == Recorded(40, 0)
        assert proxy.severed == 1
        assert await record_facts(everyone, _facts("the-one", 50)) == Recorded(10, 40)
        meters = [Meter(store, tenant_id=f"t{n}") for n in range(3)]
        assert sum([await meter.day("calls", "2026-11-15") for meter in meters]) == 70
        assert [await meter.rebuild("2026-11") for meter in meters] == [[], [], []]
        await store.close()
