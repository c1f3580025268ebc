"""Row-level security from the declared access rules.

Three roles, none of which can log in by itself; a login is made a member of one:

- `holdfast_app`: a person or a tool in one tenant, as the login's row in `_holdfast_logins` says. The session
  can't choose another tenant, user or role.
- `holdfast_service`: a backend that knows its callers. For one transaction it names them with
  `set_config('holdfast.user', …, true)`, `holdfast.tenant` and `holdfast.role` (viewer, developer, admin,
  owner or service). A service crosses tenants with the tenant `*`.
- `holdfast_engine`: the engine without ownership of the tables: all rows, but no changes to append-only ones.

The first two reach exactly what `Access.allows` permits their caller, and of a tenant's collection only that
tenant's rows; a collection without tenants is the platform's, whose roles count with the tenant `-`.
The owner of the tables is not bound by the policies: it migrates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.model.access import NO_TENANT, ROLES, Action
from holdfast.model.path import JOINT
from holdfast.model.schema import Schema
from holdfast.store.postgres.statement import BATCHES, SEQUENCE, PostgresTable
from holdfast.store.postgres.views import READERS, grant_view
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import BODY, KEY

SCHEMA_TABLE: Final = "_holdfast_schema"
LOGINS: Final = "_holdfast_logins"
SERVICE_ROLE: Final = "holdfast_service"
ENGINE_ROLE: Final = "holdfast_engine"
ROLE_NAMES: Final = ("holdfast_app", SERVICE_ROLE, ENGINE_ROLE)
_CALLERS: Final = ", ".join(READERS)
_POLICIES: Final[dict[str, tuple[Action, str]]] = {
    "holdfast_read": ("read", "SELECT"),
    "holdfast_create": ("create", "INSERT"),
    "holdfast_update": ("update", "UPDATE"),
    "holdfast_delete": ("delete", "DELETE"),
}


def create_roles() -> list[str]:
    """Return the statements for the roles, which all databases of a server share, and the table of logins."""
    roles, known = ", ".join(ROLE_NAMES), ", ".join(f"'{role}'" for role in ROLES)
    return [
        *(_create_role(name) for name in ROLE_NAMES),
        f"DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {roles}', current_schema()); END $$",
        f"GRANT USAGE ON SEQUENCE {SEQUENCE} TO {roles}",
        f"CREATE TABLE IF NOT EXISTS {LOGINS} (login NAME PRIMARY KEY, tenant TEXT NOT NULL,"
        f" user_id TEXT NOT NULL, role TEXT CHECK (role IN ({known})))",
        f"ALTER TABLE {LOGINS} ENABLE ROW LEVEL SECURITY",
        f"GRANT SELECT ON {LOGINS} TO {_CALLERS}",
        *_policy(LOGINS, "holdfast_read", f"FOR SELECT TO {_CALLERS} USING (login = session_user)"),
        f"GRANT SELECT, INSERT, DELETE ON {BATCHES} TO {ENGINE_ROLE}",
        f"GRANT SELECT ON {SCHEMA_TABLE} TO {ENGINE_ROLE}",
    ]


def _create_role(name: str) -> str:
    return (
        f"DO $$ BEGIN IF to_regrole('{name}') IS NULL THEN CREATE ROLE {name} NOLOGIN; END IF;"
        " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )


def protect(mapping: PostgresTable) -> list[str]:
    """Return the statements that put a collection under its policies, replacing older ones."""
    table, schema = quote(mapping.table), mapping.schema
    statements = [f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", *_grants(mapping)]
    for name, (action, command) in _POLICIES.items():
        if schema.append_only and action in ("update", "delete"):
            statements.append(f"DROP POLICY IF EXISTS {name} ON {table}")
            continue
        rule = _rule(schema, action)
        checks = [f"USING ({rule})"] if command != "INSERT" else []
        checks += [f"WITH CHECK ({rule})"] if command in ("INSERT", "UPDATE") else []
        statements += _policy(table, name, f"FOR {command} TO {_CALLERS} {' '.join(checks)}")
    # Rows of a list's table only repeat the main table's, so no policy opens them to callers.
    statements += [f"ALTER TABLE {quote(items.table)} ENABLE ROW LEVEL SECURITY" for items in mapping.lists]
    return [*statements, grant_view(mapping.view), *_engine_policies(mapping)]


def _grants(mapping: PostgresTable) -> Iterator[str]:
    """Yield the grants: nobody changes append-only rows, and the engine alone deletes them, for retention."""
    table, schema, roles = quote(mapping.table), mapping.schema, ", ".join(ROLE_NAMES)
    if schema.append_only:
        yield f"REVOKE UPDATE, DELETE ON {table} FROM {roles}"
        yield f"GRANT SELECT, INSERT ON {table} TO {roles}"
        # To lock rows takes the privilege to update them; the policy below refuses the update itself.
        kept = "UPDATE" if schema.retention is None else "UPDATE, DELETE"
        yield f"GRANT {kept} ON {table} TO {ENGINE_ROLE}"
    else:
        yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {roles}"
    for items in mapping.lists:
        yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quote(items.table)} TO {ENGINE_ROLE}"


def _engine_policies(mapping: PostgresTable) -> Iterator[str]:
    for name in (mapping.table, *(items.table for items in mapping.lists)):
        yield from _policy(quote(name), ENGINE_ROLE, f"TO {ENGINE_ROLE} USING (true)")
    closed = f"AS RESTRICTIVE FOR UPDATE TO {ENGINE_ROLE} USING (true) WITH CHECK (false)"
    drop, add = _policy(quote(mapping.table), "holdfast_append_only", closed)
    yield from (drop, add) if mapping.schema.append_only else (drop,)


def _policy(table: str, name: str, rule: str) -> list[str]:
    return [f"DROP POLICY IF EXISTS {name} ON {table}", f"CREATE POLICY {name} ON {table} {rule}"]


_COLUMNS: Final = {"user": "user_id", "tenant": "tenant", "role": "role"}


def _setting(name: str) -> str:
    """Return the expression for a part of the caller: as a service says, else as the login's row says."""
    # In a sub-select it is evaluated once per statement, not once per row. The session's user, unlike the
    # current one, can't be changed by SET ROLE.
    return (
        f"(SELECT CASE WHEN pg_has_role(session_user, '{SERVICE_ROLE}', 'MEMBER')"
        f" THEN NULLIF(current_setting('holdfast.{name}', true), '')"
        f" ELSE (SELECT {_COLUMNS[name]} FROM {LOGINS} WHERE login = session_user) END)"
    )


def _rule(schema: Schema[Any], action: Action) -> str:
    words = dict.fromkeys(schema.access.rules(action))
    allowed = " OR ".join(f"({_permits(word, schema)})" for word in words) or "false"
    if schema.tenant is None:
        return allowed
    tenant = _setting("tenant")
    inside = f"{quote(schema.tenant.stored)} = {tenant}"
    return f"({inside} OR ({tenant} = '*' AND {_setting('role')} = 'service')) AND ({allowed})"


def _permits(word: str, schema: Schema[Any]) -> str:
    if word == "public":
        return "true"
    if word == "service":
        return f"{_setting('role')} = 'service'"
    known = f"{_setting('user')} IS NOT NULL"
    if word == "signed_in":
        return known
    if word.startswith("self:"):
        return f"{_field(schema, word[5:])} = {_setting('user')}"
    roles = ", ".join(f"'{role}'" for role in ROLES[ROLES.index(word) :])
    allowed = f"{known} AND {_setting('role')} IN ({roles})"
    return allowed if schema.tenant else f"{allowed} AND {_setting('tenant')} = '{NO_TENANT}'"


def _field(schema: Schema[Any], name: str) -> str:
    """Return the expression for a field: a column, a part of the key, or a value of the body."""
    column = schema.column(name)
    if column is not None and column.kind == "text":
        return quote(column.stored)
    if name in schema.path.parameters:
        joint = f"chr({ord(JOINT)})"
        return f"split_part({quote(KEY)}, {joint}, {schema.path.parameters.index(name) + 1})"
    stored = "'" + schema.fields[name].encode_name.replace("'", "''") + "'"
    body = quote(BODY)
    return f"CASE WHEN json_typeof({body} -> {stored}) = 'string' THEN {body} ->> {stored} END"
