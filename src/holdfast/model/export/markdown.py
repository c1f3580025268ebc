"""A Markdown page: each collection's fields, its lifecycle, and the relations of collections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.model.export.structs import Shape, description_of, shapes_of
from holdfast.model.export.typescript import type_text
from holdfast.model.identity import CompositeId, Identity, ProvidedId, TimestampId, ZeroPaddedId
from holdfast.model.lifecycle import Lifecycle
from holdfast.model.plain_fields import may_miss
from holdfast.model.retention import Retention
from holdfast.model.schema import Schema
from holdfast.plural import plural


def markdown(schemas: Iterable[Schema[Any]], env: str) -> str:
    """Return the page as text: GitHub's Markdown with Mermaid diagrams."""
    declared = list(schemas)
    shapes = shapes_of(declared)
    names = {cls: shape.name for cls, shape in shapes.items()}
    parts = ["# Collections", *_relations(declared)]
    for shape in shapes.values():
        parts += _collection(shape, shape.schema, env) if shape.schema else []
        parts += [_field_table(shape, names)] if shape.schema else []
        parts += _rest(shape.schema) if shape.schema else []
    inner = [shape for shape in shapes.values() if shape.schema is None]
    if inner:
        parts.append("## Structs inside documents")
    for shape in inner:
        parts += [f"### {shape.name}", *([shape.description] if shape.description else [])]
        parts.append(_field_table(shape, names))
    return "\n\n".join(parts) + "\n"


def _collection(shape: Shape, schema: Schema[Any], env: str) -> Iterator[str]:
    yield f"## {shape.name}"
    if shape.description:
        yield shape.description
    facts = [f"Stored at `{_document_path(schema, env)}`; id: {_identity(schema.declared.id)}."]
    if schema.tenant:
        facts.append(f"Belongs to the tenant in `{schema.tenant.stored}`.")
    if schema.append_only:
        facts.append("Append-only.")
    if schema.membership:
        facts.append("Gives users their roles.")
    yield " ".join(facts)


def _document_path(schema: Schema[Any], env: str) -> str:
    ids = tuple(f"{{{schema.fields[name].encode_name}}}" for name in schema.path.parameters)
    return schema.path.document(ids, env)


def _identity(identity: Identity) -> str:
    if isinstance(identity, ProvidedId):
        return f"provided, matching `{identity.pattern}`" if identity.pattern else "provided"
    if isinstance(identity, TimestampId):
        return f"`{identity.prefix}-{{time}}-{{random}}`"
    if isinstance(identity, CompositeId):
        return f"`{identity.separator.join(f'{{{name}}}' for name in identity.fields)}`"
    if isinstance(identity, ZeroPaddedId):
        return f"`{identity.field}` padded to {identity.width} digits"
    return "a ULID"


def _field_table(shape: Shape, names: Mapping[type, str]) -> str:
    rows = [["Field", "Type", "Required", "Indexed", "Description"]]
    for field in shape.fields:
        required = "yes" if field.required else "may be missing" if may_miss(field) else "no"
        rows.append([
            f"`{field.encode_name}`", f"`{type_text(field.type, names)}`", required,
            _indexed(shape.schema, field.name), description_of(field) or "",
        ])  # fmt: skip
    return _table(rows)


def _indexed(schema: Schema[Any] | None, name: str) -> str:
    if schema is None:
        return ""
    if name in schema.path.parameters[-1:]:
        return "id"
    paths = {f.column.path.partition(".")[0] for index in schema.indexes for f in index.fields}
    tenant = schema.declared.tenant == name
    return "yes" if name in paths or tenant else "no"


def _table(rows: Sequence[Sequence[str]]) -> str:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    rule = ["---"] * len(rows[0])
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells[0], rule, *cells[1:]])


def _rest(schema: Schema[Any]) -> Iterator[str]:
    if schema.indexes:
        yield "Indexes: " + ", ".join(f"`{index.declared}`" for index in schema.indexes)
    if schema.immutable:
        fixed = ", ".join(f"`{schema.fields[name].encode_name}`" for name in schema.immutable)
        yield f"Immutable: {fixed}"
    if schema.lifecycle:
        yield _states(schema.lifecycle)
    if schema.retention:
        yield _retention(schema.retention)
    actions = [("read", schema.access.read), ("create", schema.access.create),
               ("update", schema.access.update), ("delete", schema.access.delete)]  # fmt: skip
    yield _table([["May", "Who"], *([action, ", ".join(words) or "nobody"] for action, words in actions)])


def _states(lifecycle: Lifecycle) -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    aliases = {state: _alias(state) for state in sorted(lifecycle.states)}
    lines += [f'    state "{state}" as {alias}' for state, alias in aliases.items() if state != alias]
    lines += [f"    [*] --> {aliases[state]}" for state in sorted(lifecycle.initial)]
    for state, to in sorted(lifecycle.moves.items()):
        lines += [f"    {aliases[state]} --> {aliases[one]}" for one in sorted(to)]
    final = [state for state in aliases if not lifecycle.moves.get(state)]
    lines += [f"    {aliases[state]} --> [*]" for state in final]
    return "\n".join([*lines, "```"])


def _alias(text: str) -> str:
    return re.sub(r"\W", "_", text)


def _retention(retention: Retention) -> str:
    when = " and ".join(f"`{name}` is `{value}`" for name, value in sorted(retention.when.items()))
    days = retention.after_s / 86_400
    after = (
        f"{plural(days, 'day')} after `{retention.field}`" if days else f"when `{retention.field}` has passed"
    )
    return f"Deleted {after}{f', where {when}' if when else ''}."


def _relations(schemas: Sequence[Schema[Any]]) -> Iterator[str]:
    """Yield the diagram of sub-collections and of the collections that belong to a tenant."""
    places = {schema.path.names: schema for schema in schemas}
    tenants = [s for s in schemas if s.declared.tenant and s.declared.tenant == s.path.parameters[-1]]
    lines = []
    for schema in schemas:
        parent = places.get(schema.path.names[:-1])
        if parent:
            lines.append(f'    {_entity(parent)} ||--o{{ {_entity(schema)} : "holds"')
        elif schema.tenant and len(tenants) == 1 and schema is not tenants[0]:
            lines.append(f'    {_entity(tenants[0])} ||--o{{ {_entity(schema)} : "owns"')
    if lines:
        yield "\n".join(["```mermaid", "erDiagram", *lines, "```"])


def _entity(schema: Schema[Any]) -> str:
    return _alias(schema.name)
