"""Document classes and their declarations."""

from holdfast.model.access import (
    ADMINS_READ,
    ANONYMOUS,
    DEVELOPERS_READ,
    MEMBERS_READ,
    SERVICE,
    SERVICE_ONLY,
    Access,
    Caller,
    Membership,
)
from holdfast.model.claim import Claim
from holdfast.model.columns import HIDDEN
from holdfast.model.document import Document, document, schema_of
from holdfast.model.identity import CompositeId, ProvidedId, TimestampId, UlidId, ZeroPaddedId
from holdfast.model.index import Index
from holdfast.model.lifecycle import Lifecycle
from holdfast.model.retention import Retention
from holdfast.model.schema import Schema

__all__ = [
    "ADMINS_READ",
    "ANONYMOUS",
    "DEVELOPERS_READ",
    "HIDDEN",
    "MEMBERS_READ",
    "SERVICE",
    "SERVICE_ONLY",
    "Access",
    "Caller",
    "Claim",
    "CompositeId",
    "Document",
    "Index",
    "Lifecycle",
    "Membership",
    "ProvidedId",
    "Retention",
    "Schema",
    "TimestampId",
    "UlidId",
    "ZeroPaddedId",
    "document",
    "schema_of",
]
