"""The engine on a PostgreSQL server: many processes, group commit, row-level security."""

from holdfast.store.postgres.engine import PostgresEngine, connect
from holdfast.store.postgres.migrate import ddl

__all__ = ["PostgresEngine", "connect", "ddl"]
