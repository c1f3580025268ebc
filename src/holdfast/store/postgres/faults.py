"""asyncpg's errors as ours, by what the caller must do next."""

from __future__ import annotations

import asyncpg

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    InvalidError,
    StoreUnavailableError,
    TooLargeError,
)
from holdfast.store.sql.migration import NOT_MIGRATED

_DISCONNECTED = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
)
_RETRYABLE = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.InvalidCachedStatementError,
)

_REFUSED = (
    asyncpg.DataError,
    asyncpg.exceptions.DataError,
    asyncpg.IntegrityConstraintViolationError,
    ValueError,
)


def is_disconnected(fault: BaseException) -> bool:
    """Whether the connection is gone or the server takes none: the work may be repeated on a new one."""
    if isinstance(fault, asyncpg.InterfaceError):
        return not isinstance(fault, (asyncpg.DataError, ValueError))
    return isinstance(fault, _DISCONNECTED) and not isinstance(fault, asyncpg.OutdatedSchemaCacheError)


def is_retryable(fault: BaseException) -> bool:
    """Whether the server rolled the work back for another transaction's sake: repeat it."""
    return isinstance(fault, _RETRYABLE)


def is_read_only(fault: BaseException) -> bool:
    """Whether the session may not write: a standby, or `default_transaction_read_only`."""
    return isinstance(fault, asyncpg.ReadOnlySQLTransactionError)


def explain(fault: BaseException) -> HoldfastError:
    """Return the server's error as ours."""
    if isinstance(fault, HoldfastError):
        return fault
    if isinstance(fault, (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError)):
        return ConfigError(f"{fault}: {NOT_MIGRATED}")
    if is_read_only(fault):
        return StoreUnavailableError(
            f"PostgreSQL is read-only ({fault}): it is a standby, or default_transaction_read_only is set"
        )
    if isinstance(fault, asyncpg.InsufficientPrivilegeError):
        return ConfigError(f"the database denies permission: {fault}")
    if isinstance(fault, asyncpg.ProgramLimitExceededError):
        return TooLargeError(f"a value is larger than PostgreSQL can index: {fault}")
    if isinstance(fault, _REFUSED):
        return InvalidError(f"PostgreSQL can't store this value: {fault}")
    return StoreUnavailableError(f"PostgreSQL refused: {fault}")
