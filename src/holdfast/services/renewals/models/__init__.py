"""Everything the service keeps."""

from holdfast.model import Document
from holdfast.services.renewals.models import deliveries
from holdfast.services.renewals.models.deliveries import (
    DLQ,
    EVENT_TYPE,
    OUTBOX_MODELS,
    DeadLetterRow,
    DeliveryState,
    RmsEndpoint,
)
from holdfast.services.renewals.models.jobs import JOBS, CalculationJob
from holdfast.services.renewals.models.outcomes import Outcome
from holdfast.services.renewals.models.scores import (
    PropertyRules,
    PropertyState,
    RiskScore,
    RunOrder,
    Summary,
)
from holdfast.services.renewals.models.source_tables import (
    TABLES,
    LeaseRow,
    LedgerRow,
    OfferRow,
    Property,
    PropertyName,
    Resident,
    Unit,
    UnitPricing,
    UnitType,
)
from holdfast.services.renewals.models.sources import BAD_KEPT, BadRow, SourceState, TableState
from holdfast.services.renewals.models.triggers import TRIGGER_JOBS, TriggerJob, TriggerState, TriggerStatus

DOCUMENTS: tuple[type[Document], ...] = (
    *TABLES.values(), PropertyName, RiskScore, RunOrder, PropertyState, PropertyRules, CalculationJob,
    TriggerJob, TriggerState, *deliveries.DOCUMENTS, Outcome, SourceState,
)  # fmt: skip

__all__ = [
    "BAD_KEPT",
    "DLQ",
    "DOCUMENTS",
    "EVENT_TYPE",
    "JOBS",
    "OUTBOX_MODELS",
    "TABLES",
    "TRIGGER_JOBS",
    "BadRow",
    "CalculationJob",
    "DeadLetterRow",
    "DeliveryState",
    "LeaseRow",
    "LedgerRow",
    "OfferRow",
    "Outcome",
    "Property",
    "PropertyName",
    "PropertyRules",
    "PropertyState",
    "Resident",
    "RiskScore",
    "RmsEndpoint",
    "RunOrder",
    "SourceState",
    "Summary",
    "TableState",
    "TriggerJob",
    "TriggerState",
    "TriggerStatus",
    "Unit",
    "UnitPricing",
    "UnitType",
]
