"""What went wrong on the way to the server, and what that means for the caller."""

from __future__ import annotations

import asyncpg

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    InvalidError,
    StoreUnavailableError,
    TooLargeError,
)

_AWAY = (
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
_AGAIN = (
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


def is_away(fault: BaseException) -> bool:
    """Whether the link is gone or the server takes none: what was asked may be asked on a new one."""
    if isinstance(fault, asyncpg.InterfaceError):
        return not isinstance(fault, (asyncpg.DataError, ValueError))
    return isinstance(fault, _AWAY) and not isinstance(fault, asyncpg.OutdatedSchemaCacheError)


def is_turn_lost(fault: BaseException) -> bool:
    """Whether the server undid the work so that others could go on: do it again."""
    return isinstance(fault, _AGAIN)


def explain(fault: BaseException) -> HoldfastError:
    """The server's refusal in our words."""
    if isinstance(fault, HoldfastError):
        return fault
    if isinstance(fault, (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError)):
        return ConfigError(f"{fault}: run `holdfast schema migrate`")
    if isinstance(fault, asyncpg.InsufficientPrivilegeError):
        return ConfigError(f"the database refuses: {fault}")
    if isinstance(fault, asyncpg.ProgramLimitExceededError):
        return TooLargeError(f"more than PostgreSQL can index: {fault}")
    if isinstance(fault, _REFUSED):
        return InvalidError(f"PostgreSQL can't keep this: {fault}")
    return StoreUnavailableError(f"PostgreSQL refused: {fault}")
