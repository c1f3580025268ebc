"""Tools for tests of Holdfast and of services built on it: a clock, real servers, recorded messages."""

from holdfast.testing.clock import ManualClock, settle
from holdfast.testing.firestore import EmulatorMissingError, deploy_rules, firestore_emulator
from holdfast.testing.postgres import (
    OwnPostgresServer,
    PostgresMissingError,
    PostgresServer,
    fresh_database,
    postgres_server,
    postgres_version,
)
from holdfast.testing.process import free_port
from holdfast.testing.recordings import Recording, load_recordings

__all__ = [
    "EmulatorMissingError",
    "ManualClock",
    "OwnPostgresServer",
    "PostgresMissingError",
    "PostgresServer",
    "Recording",
    "deploy_rules",
    "firestore_emulator",
    "free_port",
    "fresh_database",
    "load_recordings",
    "postgres_server",
    "postgres_version",
    "settle",
]
