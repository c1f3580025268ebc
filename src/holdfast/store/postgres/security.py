"""Row-level security from the declared access rules.

Hand-written SQL under the role `holdfast_app` names its caller, for one transaction, with
`set_config('holdfast.user', …, true)`, `holdfast.tenant` and `holdfast.role` (viewer, developer,
admin, owner or service); then it reaches exactly what `Access.allows` permits that caller, and of a
tenant's collection only that tenant's rows. A service crosses tenants with the tenant `*`; a collection
without tenants is the platform's, whose roles count with the tenant `-`.
The engine owns the tables, so the policies do not apply to it; it separates tenants itself.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.model.access import NO_TENANT, ROLES, Action
from holdfast.model.path import JOINT
from holdfast.model.schema import Schema
from holdfast.store.postgres.statement import SEQUENCE, PostgresTable
from holdfast.store.sql.dialect import quote
from holdfast.store.sql.tables import BODY, KEY

ROLE: Final = "holdfast_app"
_POLICIES: Final[dict[str, tuple[Action, str]]] = {
    "holdfast_read": ("read", "SELECT"),
    "holdfast_create": ("create", "INSERT"),
    "holdfast_update": ("update", "UPDATE"),
    "holdfast_delete": ("delete", "DELETE"),
}


def create_role() -> list[str]:
    """Return the statements that create the role, which all databases of a server share, and its grants."""
    return [
        f"DO $$ BEGIN IF to_regrole('{ROLE}') IS NULL THEN CREATE ROLE {ROLE} NOLOGIN; END IF;"
        " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
        f"DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {ROLE}', current_schema()); END $$",
        f"GRANT USAGE ON SEQUENCE {SEQUENCE} TO {ROLE}",
    ]


def protect(mapping: PostgresTable) -> list[str]:
    """Return the statements that put a collection under its policies, replacing older ones."""
    table = quote(mapping.table)
    statements = [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {ROLE}",
    ]
    for name, (action, command) in _POLICIES.items():
        rule = _rule(mapping.schema, action)
        checks = [f"USING ({rule})"] if command != "INSERT" else []
        checks += [f"WITH CHECK ({rule})"] if command in ("INSERT", "UPDATE") else []
        statements.append(f"DROP POLICY IF EXISTS {name} ON {table}")
        statements.append(f"CREATE POLICY {name} ON {table} FOR {command} TO {ROLE} {' '.join(checks)}")
    # Rows of a list's table only repeat the main table's, so no policy opens them.
    statements += [f"ALTER TABLE {quote(items.table)} ENABLE ROW LEVEL SECURITY" for items in mapping.lists]
    return statements


def _setting(name: str) -> str:
    # In a sub-select it is evaluated once per statement, not once per row.
    return f"(SELECT NULLIF(current_setting('holdfast.{name}', true), ''))"


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
