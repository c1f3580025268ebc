"""Who did what, when and why: appended, chained by hashes, never changed."""

from holdfast.kit.audit.chain import Fault
from holdfast.kit.audit.models import AuditEvent, AuditHead, Entry
from holdfast.kit.audit.trail import Audit, Verdict

__all__ = ["Audit", "AuditEvent", "AuditHead", "Entry", "Fault", "Verdict"]
