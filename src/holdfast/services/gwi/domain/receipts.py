"""Intent receipts: who changes what, when, where, why and on what grounds. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct


class IntentReceipt(Struct, rename="camel", kw_only=True, frozen=True):
    """Who changes what, when, where, why and on what grounds."""

    intent: str
    change_summary: str
    actor: str
    when: str
    scope: str
    policy_approval: str
    evidence: str

    @property
    def audit_fields(self) -> dict[str, Any]:
        """The receipt as the fields of an audit event, which has actor and time of its own."""
        return {
            "intent": self.intent, "change_summary": self.change_summary, "scope": self.scope,
            "policy_approval": self.policy_approval, "evidence_text": self.evidence,
        }  # fmt: skip


def receipt(
    intent: str, change_summary: str, *, actor: str, at: datetime, scope: str, approval: str, evidence: str
) -> IntentReceipt:
    """Write a receipt; what is not known is said to be none.

    Example: `receipt("Close issue 42", "2 files", actor="u1", at=now, scope="acme/shop", approval="", ...)`
    """
    return IntentReceipt(
        intent=intent, change_summary=change_summary or "none", actor=actor, when=at.isoformat(),
        scope=scope or "no repository", policy_approval=approval or "none needed",
        evidence=evidence or "none",
    )  # fmt: skip
