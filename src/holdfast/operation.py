"""Operations: acts of people and programs, each checked, done and recorded in one commit.

    @operation("run.cancelled", area="runs", verb="cancel", needs="admin", subject="run_id")
    async def cancel(runtime: Runtime, by: Operator, collection: str, run_id: str, *, reason: str) -> RunRow:
        ...
        await by.commit(lambda tx: runs.cancel(run_id, tx, reason=reason), details={"reason": reason})

HTTP routes, commands and console pages parse, call an operation and render what it returns. The platform's
are functions in `holdfast.operations`, a service's are methods of what it gives as `Parts.operations`. The
declaration says who may do it; the audit event is in the commit of the act, and an act that was refused or
failed leaves an event that says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import msgspec
import structlog

from holdfast.errors import DeclarationError, ForbiddenError, HoldfastError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import KINDS, check_act
from holdfast.kit.audit import AUDIT_MODELS, Audit, AuditEntry, AuditFactory, AuditModels, AuditOutcome
from holdfast.model import Caller
from holdfast.store import Transaction, Write

P = ParamSpec("P")
T = TypeVar("T")
MESSAGE_CHARACTERS_MAX: Final = 500
# Fewer than for acts: where the trail itself is the fault, the caller waits for these too.
FAILURE_ATTEMPTS: Final = 10
_PARAMETER: Final = "by"

log = structlog.get_logger("holdfast.operation")


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of an act: its audit action, the caller and token scope it needs, what it is about.

    `needs` is a kind of caller (`holdfast.kit.access.authorization`). `subject` names the parameter that the
    audit event is about. A `platform` operation needs the role on the platform itself and is recorded there.
    `audit` is the trail that records it.
    """

    name: str
    action: str
    area: str
    verb: str
    needs: str
    subject: str = ""
    platform: bool = False
    audit: AuditModels = AUDIT_MODELS

    def require(self, caller: Caller, tenant_id: str) -> None:
        """Raise ForbiddenError unless the caller is of the kind it needs, and a token has the scope."""
        place = NO_TENANT if self.platform else tenant_id
        check_act(caller, self.needs, area=self.area, action=self.verb, tenant_id=place)


class DeferredCommit:
    """Holds the one commit of an act back until more can be written with it, such as the answer to a request.

    Example: `async with DeferredCommit() as deferred: ...; await deferred.commit(*writes)`
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> DeferredCommit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.abandon()

    @property
    def begun(self) -> bool:
        return self._transaction is not None

    async def begin(self, audit: Audit, *, across: bool) -> Transaction:
        """The transaction of the act, in the trail's queue until this is committed or abandoned."""
        self.check_unused()
        self._transaction = await audit.begin(self._stack, across=across)
        return self._transaction

    def check_unused(self) -> None:
        """Raise DeclarationError where the act has made its commit."""
        if self.begun:
            raise DeclarationError(
                "the operation of an idempotent route commits once; declare the route REPEATABLE"
            )

    async def commit(self, *writes: Write) -> None:
        transaction = self._transaction
        assert transaction is not None
        transaction.write(*writes)
        await transaction.commit()
        self._transaction = None
        transaction.end(committed=True)

    def may_retry(self, fault: HoldfastError) -> bool:
        """Whether running the act again can help."""
        return self._transaction is None or self._transaction.may_retry(fault)

    async def abandon(self) -> None:
        """Leave the queue; what was not committed never happened."""
        if self._transaction is not None:
            self._transaction.end(committed=False)
            self._transaction = None
        await self._stack.aclose()


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, on which tenant's documents, and the audit trail that records it.

    Example: `await runs.cancel(runtime, runtime.operator(caller, "acme"), "holdfast_runs", "run-1")`
    """

    tenant_id: str
    actor: str
    caller: Caller
    audits: AuditFactory
    # Returns the caller with their role in a tenant.
    enter: Callable[[Caller, str], Awaitable[Caller]] | None = None
    operation: Operation | None = None
    subject: str = ""
    # Set for an idempotent route: its commit takes the answer along.
    deferred: DeferredCommit | None = None

    async def in_tenant(self, tenant_id: str) -> Operator:
        """The same caller on another tenant's documents, with their role there.

        For routes whose path names no tenant, because the document they are about has it.

        Example: `await operations.approve(await by.in_tenant(candidate.tenant_id), candidate.id)`
        """
        if self.deferred is not None:
            raise DeclarationError("an idempotent route can't change tenants; declare it REPEATABLE")
        caller = self.caller if self.enter is None else await self.enter(self.caller, tenant_id)
        return msgspec.structs.replace(self, tenant_id=tenant_id, caller=caller)

    async def commit(
        self,
        act: Callable[[Transaction], Awaitable[T]],
        *,
        details: Any = None,
        subject: str | Callable[[T], str] | None = None,
        action: str | None = None,
        fields: Mapping[str, Any] | Callable[[T], Mapping[str, Any]] | None = None,
        across: bool = False,
    ) -> T:
        """Run `act` and append its audit event in the same commit; one that returns False changed nothing.

        `details`, `subject` and `fields` may be functions of what `act` returned; `fields` are further ones
        of the event, such as those that a service's own class adds. With `across`, `act` reaches every
        tenant's documents.
        """

        async def both(tx: Transaction) -> T:
            result = await act(tx)
            if result is not False:
                await self.record(
                    tx, action=action, details=details(result) if callable(details) else details,
                    subject=subject(result) if callable(subject) else subject,
                    fields=fields(result) if callable(fields) else fields,
                )  # fmt: skip
            return result

        if self.deferred is not None:
            return await both(await self.deferred.begin(self._audit(), across=across))
        return await self._audit().transact(both, across=across)

    async def record(
        self, tx: Transaction, *, details: Any = None, subject: str | None = None, action: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Append the audit event to a transaction, once: for acts that take several commits."""
        entry = self._entry("done", details, subject=subject, action=action, fields=fields)
        await self._audit().add(tx, entry)

    async def append(
        self, *, details: Any = None, subject: str | None = None, action: str | None = None,
        outcome: AuditOutcome = "done",
    ) -> None:  # fmt: skip
        """Append the audit event by itself: for acts whose effects are committed elsewhere, or are none."""
        if self.deferred is not None:
            self.deferred.check_unused()
        await self._audit().append(self._entry(outcome, details, subject=subject, action=action))

    async def record_failure(self, fault: Exception) -> None:
        """Put an act that was refused or failed on record; a trail that can't be written is only logged."""
        if self.deferred is not None:
            await self.deferred.abandon()
        outcome: AuditOutcome = "refused" if isinstance(fault, ForbiddenError) else "failed"
        details = {"error": "internal", "message": type(fault).__name__}
        if isinstance(fault, HoldfastError):
            details = {"error": fault.code, "message": fault.message[:MESSAGE_CHARACTERS_MAX]}
        try:
            entry, audit = self._entry(outcome, details), self._audit()
            await audit.transact(lambda tx: audit.add(tx, entry), attempts=FAILURE_ATTEMPTS)
        except HoldfastError as unwritten:
            log.error("failed act not recorded", act=self._declared().name, error=unwritten.message)

    def _audit(self) -> Audit:
        declared = self._declared()
        return self.audits(NO_TENANT if declared.platform else self.tenant_id, models=declared.audit)

    def _entry(
        self, outcome: AuditOutcome, details: Any, *, subject: str | None = None, action: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> AuditEntry:  # fmt: skip
        return AuditEntry(
            action=action or self._declared().action, actor=self.actor, outcome=outcome, details=details,
            subject=self.subject if subject is None else subject, fields=fields or {},
        )  # fmt: skip

    def _declared(self) -> Operation:
        if self.operation is None:
            raise DeclarationError("an Operator commits only inside a function declared with @operation")
        return self.operation


class _Declare(Protocol):
    def __call__(self, function: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]: ...


def operation(
    action: str,
    *,
    area: str,
    verb: str,
    needs: str,
    subject: str = "",
    platform: bool = False,
    audit: AuditModels = AUDIT_MODELS,
) -> _Declare:
    """Declare an act. The function takes its `Operator` as `by`, changes nothing except by `by.commit`.

    Example: `@operation("token.revoked", area="tokens", verb="revoke", needs="admin", subject="token_id")`
    """

    def declare(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        signature = inspect.signature(function)
        declared = Operation(
            name=f"{function.__module__}.{function.__qualname__}", action=action, area=area, verb=verb,
            needs=needs, subject=subject, platform=platform, audit=audit,
        )  # fmt: skip
        if needs not in KINDS:
            raise DeclarationError(f"{declared.name} needs one of {', '.join(KINDS)}, not {needs!r}")
        if _PARAMETER not in signature.parameters or (subject and subject not in signature.parameters):
            raise DeclarationError(f"{declared.name} takes {_PARAMETER} and {subject or 'no subject'}")

        @functools.wraps(function)
        async def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            bound = signature.bind(*args, **kwargs)
            about = str(bound.arguments.get(subject, "")) if subject else ""
            by: Operator = msgspec.structs.replace(
                bound.arguments[_PARAMETER], operation=declared, subject=about
            )
            bound.arguments[_PARAMETER] = by
            try:
                declared.require(by.caller, by.tenant_id)
                return await function(*bound.args, **bound.kwargs)
            except Exception as fault:
                await by.record_failure(fault)
                raise

        checked.operation = declared  # type: ignore[attr-defined]
        return checked

    return declare


def declaration_of(function: Any) -> Operation:
    """The declaration of an operation; DeclarationError for a function that is none."""
    declared = getattr(function, "operation", None)
    if not isinstance(declared, Operation):
        raise DeclarationError(f"{getattr(function, '__qualname__', function)!r} is no operation")
    return declared
