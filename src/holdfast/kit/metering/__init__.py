"""Metering: one ledger event per fact, exact sums in the same commit, limits that hold."""

from holdfast.kit.metering.meter import Drift, Meter, Recorded
from holdfast.kit.metering.models import Allowance, UsageEvent, UsageSum

__all__ = ["Allowance", "Drift", "Meter", "Recorded", "UsageEvent", "UsageSum"]
