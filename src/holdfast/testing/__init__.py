"""Tools for tests of Holdfast and of services built on it: a clock and real servers."""

from holdfast.testing.clock import ManualClock, settle
from holdfast.testing.firestore import EmulatorMissingError, firestore_emulator
from holdfast.testing.postgres import (
    OwnPostgresServer,
    PostgresMissingError,
    PostgresServer,
    fresh_database,
    postgres_server,
    postgres_version,
)
from holdfast.testing.process import free_port

__all__ = [
    "EmulatorMissingError",
    "ManualClock",
    "OwnPostgresServer",
    "PostgresMissingError",
    "PostgresServer",
    "firestore_emulator",
    "free_port",
    "fresh_database",
    "postgres_server",
    "postgres_version",
    "settle",
]
