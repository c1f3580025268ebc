"""Leases: a lock with a time limit, renewal and a fencing number that the store checks."""

from holdfast.kit.leases.lease import Lease
from holdfast.kit.leases.leases import Leases
from holdfast.kit.leases.models import LEASE_CLAIM, LeaseDocument, LeaseFields

__all__ = ["LEASE_CLAIM", "Lease", "LeaseDocument", "LeaseFields", "Leases"]
