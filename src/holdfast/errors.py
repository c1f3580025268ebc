"""Every error Holdfast raises, named by what the caller must do next.

HoldfastError
├── ConfigError               fix the setting named in the message
├── DeclarationError          fix the document class
├── IncompatibleReleaseError  start another release, or stop the processes that the message names
├── InvalidError              fix the input; nothing was written
│   ├── WrongTypeError            a field has the wrong type or breaks its own rule
│   ├── UnknownFieldError         the document declares no such field
│   ├── BadIdError                an id the engines can't hold
│   ├── TooLargeError             over a stated limit
│   ├── IllegalMoveError          the lifecycle has no such move
│   ├── ImmutableFieldError       the field can only be set at creation
│   ├── KeyReusedError            the idempotency key belongs to another request; use a new one
│   ├── AppendOnlyError           the collection takes new documents only
│   ├── BadQueryError             the query contradicts itself
│   ├── UnindexedQueryError       declare the index in the message
│   └── BadCursorError            the cursor belongs to another query
├── UnverifiedError           the sender did not prove who it is: answer 401
├── NotOursError              the message is for nobody here: answer 200 and drop it
├── ForbiddenError            the caller may not do this
│   └── WrongTenantError          the document belongs to another tenant
├── ConflictError             read again, decide again, commit again
│   ├── AlreadyExistsError        the id is taken
│   ├── NotFoundError             the document does not exist
│   └── VersionConflictError      the document was written in between
├── ReauthRequiredError       the grant no longer works: have its owner connect again
├── GoneError                 it was deleted at the provider: forget it
│   └── FullSyncRequiredError     the sync token expired: read everything again
├── DecryptionError           restore the key, or have the secret entered again
├── JobFailedError            fix what the message names, then start it again
├── LeaseLostError            stop: another worker holds the claim now
├── LimitReachedError         wait for the next period, or raise the limit
└── RetryLaterError           nothing was written; try again after `after_s`
    ├── TooManyRequestsError      too much in too short a time
    ├── InProgressError           the same request is in progress; ask again for its response
    ├── StoreUnavailableError     the engine can't be reached
    └── OutcomeUnknownError       the connection broke while committing; read before you retry

Each class has a stable `code`, used in HTTP responses, logs and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class HoldfastError(Exception):
    """The root of the tree: `code` is stable, `path` names the field where there is one."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path

    @property
    def details(self) -> Mapping[str, Any] | None:
        """Machine-readable details in addition to the message."""
        return {"path": self.path} if self.path else None


class ConfigError(HoldfastError):
    code = "bad_config"


class DeclarationError(HoldfastError):
    code = "bad_declaration"


class IncompatibleReleaseError(HoldfastError):
    code = "incompatible_release"


class InvalidError(HoldfastError):
    """`allowed` are the values that would fit, where there are only some."""

    code = "invalid"

    def __init__(
        self, message: str, path: str | None = None, *, allowed: Sequence[Any] | None = None
    ) -> None:
        super().__init__(message, path)
        self.allowed = allowed

    @property
    def details(self) -> Mapping[str, Any] | None:
        return super().details if self.allowed is None else {"path": self.path, "allowed": list(self.allowed)}


class WrongTypeError(InvalidError):
    code = "wrong_type"


class UnknownFieldError(InvalidError):
    code = "unknown_field"


class BadIdError(InvalidError):
    code = "bad_id"


class TooLargeError(InvalidError):
    code = "too_large"


class IllegalMoveError(InvalidError):
    code = "illegal_move"


class ImmutableFieldError(InvalidError):
    code = "immutable_field"


class KeyReusedError(InvalidError):
    code = "key_reused"


class AppendOnlyError(InvalidError):
    code = "append_only"


class BadQueryError(InvalidError):
    code = "bad_query"


class UnindexedQueryError(InvalidError):
    code = "unindexed_query"


class BadCursorError(InvalidError):
    code = "bad_cursor"


class UnverifiedError(HoldfastError):
    code = "unverified"


class NotOursError(HoldfastError):
    code = "not_ours"


class ForbiddenError(HoldfastError):
    """`needs` are the roles or scopes that suffice for the `act`, `has` is what the caller has."""

    code = "forbidden"

    def __init__(
        self,
        message: str,
        path: str | None = None,
        *,
        needs: tuple[str, ...] = (),
        has: str = "",
        act: str = "",
    ) -> None:
        super().__init__(message, path)
        self.needs, self.has, self.act = needs, has, act

    @property
    def details(self) -> Mapping[str, Any] | None:
        if not self.needs:
            return super().details
        return {**({"act": self.act} if self.act else {}), "needs": list(self.needs), "has": self.has}


class WrongTenantError(ForbiddenError):
    code = "wrong_tenant"


class ConflictError(HoldfastError):
    code = "conflict"


class AlreadyExistsError(ConflictError):
    code = "already_exists"


class NotFoundError(ConflictError):
    code = "not_found"


class VersionConflictError(ConflictError):
    code = "version_conflict"


class ReauthRequiredError(HoldfastError):
    code = "reauth_required"


class GoneError(HoldfastError):
    code = "gone"


class FullSyncRequiredError(GoneError):
    code = "full_sync_required"


class DecryptionError(HoldfastError):
    code = "unreadable"


class JobFailedError(HoldfastError):
    """`details` identify the job and the reason."""

    code = "failed"

    def __init__(self, message: str, path: str | None = None, *, details: Mapping[str, str]) -> None:
        super().__init__(message, path)
        self._details = details

    @property
    def details(self) -> Mapping[str, Any] | None:
        return self._details


class LeaseLostError(HoldfastError):
    code = "lease_lost"


class LimitReachedError(HoldfastError):
    """`usage` of `limit` is taken under the `plan`; `after_s` is how long until some is free, where known."""

    code = "limit_reached"

    def __init__(
        self,
        message: str,
        path: str | None = None,
        *,
        usage: float | None = None,
        limit: float | None = None,
        plan: str = "",
        after_s: float | None = None,
    ) -> None:
        super().__init__(message, path)
        self.usage, self.limit, self.plan, self.after_s = usage, limit, plan, after_s

    @property
    def details(self) -> Mapping[str, Any] | None:
        known = {"usage": self.usage, "limit": self.limit, "plan": self.plan or None, "path": self.path}
        return {name: value for name, value in known.items() if value is not None} or None

    def under(self, plan: str, *, after_s: float | None = None) -> LimitReachedError:
        """The same with the plan that sets the limit, and how long until some is free.

        Example: `raise fault.under("free", after_s=30) from None`
        """
        return LimitReachedError(
            f"{self.message} by the plan {plan}", self.path, usage=self.usage, limit=self.limit, plan=plan,
            after_s=after_s,
        )  # fmt: skip


class RetryLaterError(HoldfastError):
    """Nothing was written. `after_s` is how long to wait before the next try."""

    code = "retry_later"

    def __init__(self, message: str, path: str | None = None, *, after_s: float = 1.0) -> None:
        super().__init__(message, path)
        self.after_s = after_s


class TooManyRequestsError(RetryLaterError):
    code = "too_many_requests"


class InProgressError(RetryLaterError):
    code = "in_progress"


class StoreUnavailableError(RetryLaterError):
    code = "store_unavailable"


class OutcomeUnknownError(RetryLaterError):
    code = "outcome_unknown"
