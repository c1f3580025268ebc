"""Documents of metering: a ledger of events, and sums that move in the same commit.

Sums are kept in one of two layouts: by metric and day (`UsageSum`, the kit's own), or in one document for
each day, month and tenant with a field for each metric (`PeriodModels`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
from msgspec import inspect as mi

from holdfast.errors import DeclarationError
from holdfast.kit.model_checks import check_model, check_separate
from holdfast.model import MEMBERS_READ, CompositeId, Document, Index, document, schema_of

EVENT_ID: Final = CompositeId("tenant_id", "fact")
EVENT_INDEXES: Final = (Index("-at"),)
SUM_ID: Final = CompositeId("tenant_id", "metric", "day", "shard")
# Not by the value: an index that holds what every fact changes is written with every fact.
SUM_INDEXES: Final = (Index("month", "metric", "day"),)
ALLOWANCE_ID: Final = CompositeId("tenant_id", "name")
ALLOWANCE_INDEXES: Final = (Index("name"),)
DAY_ID: Final = CompositeId("tenant_id", "date")
_FACT_BYTES_MAX: Final = 200
MONTH_ID: Final = CompositeId("tenant_id", "month")


class UsageEventFields(Document, rename="camel"):
    """The fields of one fact that used something; declare a subclass for another collection name.

    `fact` is its idempotency key, and part of its id: a fact never counts twice.
    """

    id: str = ""
    tenant_id: str
    fact: str
    at: datetime
    month: str
    kind: str
    metrics: dict[str, int]
    metadata: Any = None


@document(
    "holdfast_usage_events/{id}",
    id=EVENT_ID,
    tenant="tenant_id",
    indexes=EVENT_INDEXES,
    append_only=True,
    access=MEMBERS_READ,
)
class UsageEvent(UsageEventFields, rename="camel"):
    """One fact in the kit's own ledger."""


class UsageSumFields(Document, rename="camel"):
    """A day's sum of one metric, in as many shards as the engine wants for a hot counter."""

    id: str = ""
    tenant_id: str
    metric: str
    day: str
    month: str
    shard: int
    value: int


@document(
    "holdfast_usage_sums/{id}",
    id=SUM_ID,
    tenant="tenant_id",
    indexes=SUM_INDEXES,
    counters=["value"],
    access=MEMBERS_READ,
)
class UsageSum(UsageSumFields, rename="camel"):
    """A sum of the kit's own ledger."""


class AllowanceFields(Document, rename="camel"):
    """Usage of something limited, in a period or at the moment.

    `limit` is the one it was last taken against; 0 where nothing was taken since limits are stored.
    """

    id: str = ""
    tenant_id: str
    name: str
    used: int
    limit: int = 0


@document(
    "holdfast_allowances/{id}",
    id=ALLOWANCE_ID,
    tenant="tenant_id",
    indexes=ALLOWANCE_INDEXES,
    access=MEMBERS_READ,
)
class Allowance(AllowanceFields, rename="camel"):
    """An allowance of the kit's own meter."""


class UsageDayFields(Document, rename="camel"):
    """What a tenant used on one day; a subclass adds a field `runs: int = 0` for each metric.

    A metric is counted in the field that is stored under its name.
    """

    id: str = ""
    tenant_id: str
    date: str
    updated_at: datetime


class UsageMonthFields(Document, rename="camel"):
    """What a tenant used in one month, with the same metrics as a day."""

    id: str = ""
    tenant_id: str
    month: str
    updated_at: datetime


class UsageSnapshotFields(Document, rename="camel"):
    """What a tenant has used in the latest month that it used anything in.

    A metric, such as `runs`, is counted in the field that is stored under its name and `metric_suffix`, such
    as `runsThisMonth`; metrics without such a field are left out.
    """

    tenant_id: str
    current_month: str
    last_updated_at: datetime

    metric_suffix: ClassVar[str] = "ThisMonth"


class PeriodModels(msgspec.Struct, frozen=True, kw_only=True):
    """Sums in one document for each day and month and, where given, one for each tenant.

    Example: `PeriodModels(day=UsageDaily, month=UsageMonthly, snapshot=UsageNow)`
    """

    day: type[UsageDayFields]
    month: type[UsageMonthFields]
    snapshot: type[UsageSnapshotFields] | None = None

    def __post_init__(self) -> None:
        check_model(self.day, UsageDayFields, path=("id",), id=DAY_ID)
        check_model(self.month, UsageMonthFields, path=("id",), id=MONTH_ID)
        metrics = metric_fields(self.day).keys()
        if metric_fields(self.month).keys() != metrics:
            raise DeclarationError(f"{self.month.__name__} needs the metrics of {self.day.__name__}")
        if self.snapshot is None:
            return
        check_model(self.snapshot, UsageSnapshotFields, path=("tenant_id",))
        unknown = metric_fields(self.snapshot).keys() - metrics
        if unknown:
            raise DeclarationError(f"{self.day.__name__} lacks {', '.join(sorted(unknown))}: int = 0")

    @property
    def all(self) -> tuple[type[Document], ...]:
        return (self.day, self.month, *([] if self.snapshot is None else [self.snapshot]))


class MeterModels(msgspec.Struct, frozen=True, kw_only=True):
    """The document classes of a meter; a service gives subclasses declared under its own names.

    Example: `MeterModels(event=Usage, allowance=Quota, sums=PeriodModels(day=Daily, month=Monthly))`
    """

    event: type[UsageEventFields] = UsageEvent
    allowance: type[AllowanceFields] = Allowance
    sums: type[UsageSumFields] | PeriodModels = UsageSum

    def __post_init__(self) -> None:
        check_separate("a meter", self.all, (UsageEvent, Allowance, UsageSum))
        check_model(
            self.event, UsageEventFields, path=("id",), id=EVENT_ID, indexes=EVENT_INDEXES, append_only=True
        )
        check_model(self.allowance, AllowanceFields, path=("id",), id=ALLOWANCE_ID, indexes=ALLOWANCE_INDEXES)
        if not isinstance(self.sums, PeriodModels):
            check_model(self.sums, UsageSumFields, path=("id",), id=SUM_ID, indexes=SUM_INDEXES)

    @property
    def all(self) -> tuple[type[Document], ...]:
        sums = self.sums.all if isinstance(self.sums, PeriodModels) else (self.sums,)
        return (self.event, self.allowance, *sums)


def metric_fields(cls: type[UsageDayFields | UsageMonthFields | UsageSnapshotFields]) -> Mapping[str, str]:
    """The fields with metrics by the metrics' names: the integers that a service's own class adds."""
    suffix = cls.metric_suffix if issubclass(cls, UsageSnapshotFields) else ""
    found: dict[str, str] = {}
    for name, field in schema_of(cls).fields.items():
        if isinstance(field.type, mi.IntType) and field.encode_name.endswith(suffix):
            if field.default != 0:
                raise DeclarationError(f"{cls.__name__}.{name} needs the default 0", name)
            found[field.encode_name.removesuffix(suffix)] = name
    return found


def fact_id(fact: str) -> str:
    """A key of any kind as an id: itself where it is valid, otherwise its digest."""
    if fact and len(fact.encode()) <= _FACT_BYTES_MAX and "/" not in fact and fact.isprintable():
        return fact
    return "sha256-" + hashlib.sha256(fact.encode()).hexdigest()


def event_id(tenant_id: str, fact: str) -> str:
    """The id that the ledger event of a tenant gets; `fact` is a `fact_id`."""
    return f"{tenant_id}{EVENT_ID.separator}{fact}"


METER_MODELS: Final = MeterModels()
