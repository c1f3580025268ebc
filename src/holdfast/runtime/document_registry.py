"""The documents of a process, and which of their fields are sealed or hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import ConfigError, DeclarationError
from holdfast.kit.access import ApiToken, Session, Setup, SignInLink, User, VisitorSession
from holdfast.kit.access.visitors import VISITOR_KEY
from holdfast.kit.activity import ActivityHour, ActivityMinute
from holdfast.kit.audit import AUDIT_KEY, AuditEvent, AuditHead
from holdfast.kit.cache import CacheDocument, CacheGeneration
from holdfast.kit.channels import Channel, Watch
from holdfast.kit.checkpoints import CheckpointDocument
from holdfast.kit.connections import Connection, ConnectionFields, Consent
from holdfast.kit.connections.models import SEALED_CONSENT, SEALED_TOKENS
from holdfast.kit.idempotency import IdempotencyDocument, IdempotencyFields
from holdfast.kit.inbox import InboxChunk, InboxItem, InboxQueue, InboxUpload
from holdfast.kit.leases import LeaseDocument, LeaseFields
from holdfast.kit.metering import Allowance, UsageEvent, UsageSum
from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint, EndpointNotice, FifoLane
from holdfast.kit.outbox.models import AttemptChunk, EndpointCircuit
from holdfast.kit.processes import PROCESS_DOCUMENTS
from holdfast.kit.rate_limit import RateLimitDocument, RateWindow
from holdfast.kit.runs import RunDocument, StepDocument
from holdfast.kit.schedules import Schedule, SlotRun
from holdfast.kit.vault import KeyRegister, Rotation
from holdfast.model import Document, schema_of
from holdfast.service import Service
from holdfast.store import Query, Store
from holdfast.store_copy import Copy

KIT_DOCUMENTS: Final[tuple[type[Document], ...]] = (
    Allowance, ApiToken, AttemptChunk, AuditEvent, AuditHead, CacheDocument, CacheGeneration, Channel,
    CheckpointDocument, Connection, Consent, Copy,
    DeadLetter, Delivery, Endpoint, EndpointCircuit, EndpointNotice, FifoLane, IdempotencyDocument,
    InboxChunk, InboxItem, InboxQueue, InboxUpload,
    LeaseDocument, ActivityHour, ActivityMinute, RateLimitDocument, RateWindow, *PROCESS_DOCUMENTS, Rotation,
    RunDocument,
    Schedule, Session, Setup, SignInLink, SlotRun, StepDocument, UsageEvent, UsageSum, User,
    VisitorSession, Watch,
)  # fmt: skip
KIT_SEALED: Final[Mapping[type[Document], Sequence[str]]] = {
    ConnectionFields: SEALED_TOKENS,
    Consent: SEALED_CONSENT,
    Endpoint: ("secrets.sealed",),
}


def documents_of(services: Sequence[Service]) -> list[type[Document]]:
    """Every document class of a process: the kit's and those of its services."""
    return list(dict.fromkeys([*KIT_DOCUMENTS, *(cls for service in services for cls in service.documents)]))


async def has_documents(store: Store, kinds: Iterable[type[Document]]) -> bool:
    """Whether the store has a document of any of these classes; a missing table has none."""
    for kind in kinds:
        query: Query[Any] = Query(kind).limit(1)
        query = query.across_parents() if schema_of(kind).path.nested else query
        with suppress(ConfigError):
            if schema_of(kind) in store.catalog and (await store.privileged().query(query)).items:
                return True
    return False


def claimed_by_workers(services: Sequence[Service]) -> list[type[Document]]:
    """The document classes of work that a process claims; not its locks, which it renews while it lives."""
    own = [cls for cls in documents_of(services) if not issubclass(cls, LeaseFields | IdempotencyFields)]
    return [cls for cls in own if (claim := schema_of(cls).claim) is not None and claim.owner is not None]


def sealed_fields(services: Sequence[Service]) -> dict[type[Document], Sequence[str]]:
    """The fields with vault ciphertext, by document class: the kit's and those of the services."""
    own = {cls: fields for one in services for cls, fields in one.sealed.items()}
    sealed = {**_of_subclasses(KIT_SEALED, services), **own}
    for cls, paths in sealed.items():
        shown = schema_of(cls).fields.keys() - schema_of(cls).hidden
        if names := shown.intersection(path.partition(".")[0] for path in paths):
            raise DeclarationError(
                f"{cls.__name__}: the vault seals {', '.join(sorted(names))}, which SQL views would show;"
                " declare it `Annotated[…, HIDDEN]`"
            )
    return sealed


def key_register(services: Sequence[Service]) -> KeyRegister:
    """Everything that the vault's keys seal and sign: the kit's, and the services'."""
    derived = [AUDIT_KEY, VISITOR_KEY, *(key for service in services for key in service.derived_keys)]
    return KeyRegister(sealed=sealed_fields(services), derived=derived)


def _of_subclasses(
    declared: Mapping[type[Document], Sequence[str]], services: Sequence[Service]
) -> dict[type[Document], Sequence[str]]:
    """Fields of the kit's classes, also in the classes that services derive from them."""
    return {
        cls: fields
        for cls in documents_of(services)
        for kind, fields in declared.items()
        if issubclass(cls, kind)
    }


def hidden_fields(services: Sequence[Service]) -> dict[type[Document], frozenset[str]]:
    """The fields that people never see, by their stored names."""
    schemas = {cls: schema_of(cls) for cls in documents_of(services)}
    return {
        cls: frozenset(schema.fields[name].encode_name for name in schema.hidden)
        for cls, schema in schemas.items()
        if schema.hidden
    }
