"""The embedded engine: one file, several processes, full durability, no server."""

from holdfast.store.sqlite.engine import SqliteEngine, connect
from holdfast.store.sqlite.migrate import ddl

__all__ = ["SqliteEngine", "connect", "ddl"]
