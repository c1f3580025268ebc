"""Errors in the service's responses: flat, and for refusals the act and the caller's role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from holdfast.error_format import ErrorBody, FlatErrorResponse


class GwiErrorResponse(FlatErrorResponse, frozen=True, omit_defaults=True):
    """`{"error", "message", "details"}`; those of a refusal are `{"requiredAction", "userRole"}`."""

    @classmethod
    def of(cls, body: ErrorBody) -> Self:
        details = body.details
        if isinstance(details, Mapping) and "needs" in details:
            action = details.get("act") or ", ".join(details["needs"])
            details = {
                "requiredAction": action,
                "requiredRoles": details["needs"],
                "userRole": details["has"],
            }
        return cls(body.code, body.message, details)
