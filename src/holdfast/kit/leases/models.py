"""Documents of leases: the holder, the expiry and the fencing number."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Claim, Document, Retention, document


class LeaseFields(Document, rename="camel"):
    """The fields of a lease; declare a subclass for another collection name.

    The document stays after release, expired and without holder: its fencing number must not start over while
    anybody could still hold an old one.
    """

    lock_id: str
    tenant_id: str = NO_TENANT
    held_by: str = ""
    acquired_at: datetime
    expires_at: datetime | None
    ttl_s: float
    purpose: str = ""
    fence: int


def lock_id_of(tenant_id: str, name: str) -> str:
    """The document id of a lease: ids are shared by all tenants, so it carries the tenant.

    Example: `lock_id_of("acme", "nightly")` gives `acme:nightly`, without a tenant just `nightly`
    """
    return name if tenant_id == NO_TENANT else f"{tenant_id.replace(':', '::')}:{name}"


LEASE_CLAIM: Final = Claim(due="expires_at", fence="fence", owner="held_by")


@document(
    "holdfast_leases/{lock_id}",
    tenant="tenant_id",
    claim=LEASE_CLAIM,
    retention=Retention("expires_at", after_s=7 * 86_400),
    access=SERVICE_ONLY,
)
class LeaseDocument(LeaseFields, rename="camel"):
    """A lease of the kit's own collection."""
