"""How much was used: one event per fact, exact sums at every moment, limits that hold."""

from holdfast.kit.metering.meter import Drift, Meter, Recorded
from holdfast.kit.metering.models import Allowance, UsageEvent, UsageSum

__all__ = ["Allowance", "Drift", "Meter", "Recorded", "UsageEvent", "UsageSum"]
