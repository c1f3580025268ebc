"""An import in a process of its own, to be killed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from signal import SIGSTOP, raise_signal

from holdfast.errors import LeaseLostError
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.reports import TableReport
from holdfast.services.renewals.ingest.sources import open_source
from tests.faults.controlled_process import Hear, Order, Role
from tests.services.renewals.platform_schema import kept_in


async def take(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Import, telling of each table; stands still in the middle of the one that the order names."""
    async with kept_in(order["store"]) as store:
        made = Import(store.tenant("-"), open_source(order["source"]), lease_s=order["lease_s"])

        def tell(report: TableReport) -> None:
            say(report.table)
            if report.table == order.get("until"):
                del order["until"]
                raise_signal(SIGSTOP)

        try:
            await made.run(tell, trust_digests=True)
        except LeaseLostError:
            say("lost")


ROLES: dict[str, Role] = {"take": take}
