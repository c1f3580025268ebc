"""Metering: one ledger event per fact, exact sums in the same commit, limits that hold."""

from holdfast.kit.metering.batch import Fact, Recorded, record_facts
from holdfast.kit.metering.meter import Meter, MeterFactory
from holdfast.kit.metering.models import (
    METER_MODELS,
    Allowance,
    AllowanceFields,
    MeterModels,
    PeriodModels,
    UsageDayFields,
    UsageEvent,
    UsageEventFields,
    UsageMonthFields,
    UsageSnapshotFields,
    UsageSum,
    UsageSumFields,
)
from holdfast.kit.metering.periods import Drift, day_of, month_of

__all__ = [
    "METER_MODELS",
    "Allowance",
    "AllowanceFields",
    "Drift",
    "Fact",
    "Meter",
    "MeterFactory",
    "MeterModels",
    "PeriodModels",
    "Recorded",
    "UsageDayFields",
    "UsageEvent",
    "UsageEventFields",
    "UsageMonthFields",
    "UsageSnapshotFields",
    "UsageSum",
    "UsageSumFields",
    "day_of",
    "month_of",
    "record_facts",
]
