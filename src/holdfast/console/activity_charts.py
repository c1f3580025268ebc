"""The overview's charts: activity of the last hour, day or week, with links to the lists that it is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from markupsafe import Markup

from holdfast.console.plots import Series, chart
from holdfast.kit import ALL_TENANTS
from holdfast.kit.activity import COUNTED, ActivityFields, ActivityHour, ActivityMinute, recent
from holdfast.store import Store

TONES: Final = {"delivered": "good", "failed": "warn", "dead": "bad", "handled": "accent", "waited": "warn"}
_QUERY_TIME: Final = "%Y-%m-%dT%H:%MZ"

Link = Callable[..., str]


class ActivityRange(msgspec.Struct, frozen=True):
    """How far back charts go, by minute or by hour, and the times written below them."""

    span: str
    kind: type[ActivityFields]
    count: int
    tick_every: int
    tick_format: str
    label_format: str

    @property
    def step(self) -> str:
        return "minute" if self.kind is ActivityMinute else "hour"


RANGES: Final[Mapping[str, ActivityRange]] = {
    "1h": ActivityRange("last hour", ActivityMinute, 60, 15, "%H:%M", "%H:%M"),
    "24h": ActivityRange("last 24 hours", ActivityHour, 24, 6, "%H:%M", "%d %b %H:%M"),
    "7d": ActivityRange("last 7 days", ActivityHour, 168, 24, "%d %b", "%d %b %H:%M"),
}


class ActivityCharts:
    """Charts and figures of one range. Times are in UTC.

    Example: `charts = await ActivityCharts.read(store, "24h")`
    """

    def __init__(self, name: str, steps: Sequence[ActivityFields]) -> None:
        self.name, self.range, self.steps = name, RANGES[name], steps
        self.sums = {name: sum(getattr(one, name) for one in steps) for name in COUNTED}
        self.longest_s = max(one.waited_s for one in steps)

    @classmethod
    async def read(cls, store: Store, name: str) -> ActivityCharts:
        wanted = RANGES[name]
        return cls(name, await recent(store, wanted.kind, wanted.count))

    @property
    def busy(self) -> list[ActivityFields]:
        """The steps in which anything happened, newest first."""
        return [one for one in reversed(self.steps) if one.waited_s or any(getattr(one, n) for n in COUNTED)]

    def deliveries(self, link: Link) -> Markup:
        series = [self._series(name) for name in ("delivered", "failed", "dead")]
        links = [self.deliveries_link(one, link) for one in self.steps]
        return self._chart("deliveries", "Delivery attempts", series, links=links)

    def handled(self, link: Link | None) -> Markup:
        """Messages handled; without `link`, for people who may not see the inbox."""
        links = [self.handled_link(link)] * len(self.steps) if link else []
        return self._chart("messages", "Messages handled", [self._series("handled")], links=links)

    def waits(self) -> Markup:
        waited = Series("waited", TONES["waited"], [one.waited_s for one in self.steps])
        return self._chart("wait", "Longest wait of due work", [waited], unit=" s")

    def deliveries_link(self, one: ActivityFields, link: Link) -> str:
        """The list of deliveries of all tenants that were created in this step."""
        return link(
            "/console/deliveries", status="all", since=one.at.strftime(_QUERY_TIME),
            until=(one.at + one.step).strftime(_QUERY_TIME), tenant=ALL_TENANTS,
        )  # fmt: skip

    def handled_link(self, link: Link) -> str:
        """The list of messages of all tenants that are done; their times have no index."""
        return link("/console/inbox", status="done", tenant=ALL_TENANTS)

    def label(self, one: ActivityFields) -> str:
        return one.at.strftime(self.range.label_format)

    def _series(self, name: str) -> Series:
        return Series(name, TONES[name], [getattr(one, name) for one in self.steps])

    def _chart(
        self, id: str, what: str, series: Sequence[Series], *, links: Sequence[str] = (), unit: str = ""
    ) -> Markup:
        every, form = self.range.tick_every, self.range.tick_format
        end = self.steps[-1].at + self.range.kind.step
        times = [*(one.at for one in self.steps[::every]), end]
        return chart(
            series, [f"{self.label(one)} UTC" for one in self.steps], id=f"chart-{id}", links=links,
            unit=unit, title=f"{what} by {self.range.step}, the {self.range.span}, in UTC",
            ticks=[at.strftime(form) for at in times],
        )  # fmt: skip
