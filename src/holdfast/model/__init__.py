"""Declare once: document classes and everything said about them."""

from holdfast.model.access import ANONYMOUS, SERVICE, Access, Caller, Membership
from holdfast.model.claim import Claim
from holdfast.model.document import Document, document, schema_of
from holdfast.model.identity import Given, Joined, Padded, Stamped, Ulid
from holdfast.model.index import Index
from holdfast.model.lifecycle import Lifecycle
from holdfast.model.retention import Retention
from holdfast.model.schema import Schema

__all__ = [
    "ANONYMOUS",
    "SERVICE",
    "Access",
    "Caller",
    "Claim",
    "Document",
    "Given",
    "Index",
    "Joined",
    "Lifecycle",
    "Membership",
    "Padded",
    "Retention",
    "Schema",
    "Stamped",
    "Ulid",
    "document",
    "schema_of",
]
