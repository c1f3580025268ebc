"""`firestore.rules`: what the declarations allow people who reach Firestore directly.

A service is a token with the claim `service: true` (admin credentials bypass the rules anyway). A
person's role in a tenant is read from the membership collections: the one a service declares, and the
platform's users. The rules also enforce what the store enforces on writes: ids that match the path, the
tenant, immutable fields, legal transitions, fencing numbers, append-only collections. Whatever is not
declared is denied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from holdfast.errors import DeclarationError
from holdfast.model.access import NO_TENANT, PLATFORM_ROLES, ROLES
from holdfast.model.identity import CompositeId
from holdfast.model.permission import membership_schemas
from holdfast.model.schema import Schema

_OLD: Final = "resource.data"
_NEW: Final = "request.resource.data"
# Words that mean something else in a rule, so no path variable may be called so.
_TAKEN: Final = frozenset({
    "allow", "database", "debug", "duration", "else", "exists", "false", "function", "get",
    "getAfter", "hashing", "if", "in", "int", "is", "latlng", "let", "list", "match",
    "math", "null", "path", "request", "resource", "return", "service", "timestamp", "true",
})  # fmt: skip
_SIGNED_IN: Final = """\
    function signedIn() {
      return request.auth != null;
    }
"""
_SERVICE: Final = """\
    function isService() {
      return request.auth != null && request.auth.token.get('service', false) == true;
    }
"""


def firestore_rules(schemas: Iterable[Schema[Any]], env: str) -> str:
    """The whole file as text; a role in a rule needs one collection declared with `membership=`."""
    kept = list(schemas)
    blocks = [_SIGNED_IN, _SERVICE, *_role_functions(kept, env)]
    for schema in kept:
        blocks.append(_block(schema, env))
        if _asked_across(schema):
            blocks.append(_group_block(schema, env))
    return (
        "rules_version = '2';\n\nservice cloud.firestore {\n"
        "  match /databases/{database}/documents {\n" + "\n".join(blocks) + "  }\n}\n"
    )


def _role_functions(schemas: Sequence[Schema[Any]], env: str) -> list[str]:
    needing = [schema.name for schema in schemas if schema.access.words & set(ROLES)]
    giving = membership_schemas(schemas)
    if needing and not giving:
        raise DeclarationError(
            f"{needing[0]} allows roles, but no collection says who has them: declare one with "
            "membership=Membership(...), or add it to the models"
        )
    if len(giving) < 2:
        return [_role_function(schema, env, name="hasRole") for schema in giving]
    names = [f"hasRoleBy{schema.name}" for schema in giving]
    calls = " || ".join(f"{name}(tenant, roles)" for name in names)
    return [
        *(_role_function(schema, env, name=name) for schema, name in zip(giving, names, strict=True)),
        f"    function hasRole(tenant, roles) {{\n      return {calls};\n    }}\n",
    ]


def _role_function(schema: Schema[Any], env: str, *, name: str) -> str:
    member, identity = schema.membership, schema.declared.id
    assert member is not None
    role = f"member.{_stored(schema, member.role)}"
    in_tenant = f"member.{_stored(schema, member.tenant)} == tenant"
    if member.platform:
        everywhere = f"member.{_stored(schema, member.tenant)} == {_literal(NO_TENANT)}"
        in_tenant = f"({in_tenant} || ({everywhere} && {role} in {_list(PLATFORM_ROLES)}))"
    else:
        # Roles on the platform itself are never a service's to give.
        in_tenant = f"tenant != {_literal(NO_TENANT)}\n        && {in_tenant}"
    # Two pairs can join to one id, so the fields are compared as well.
    conditions = [f"member.{_stored(schema, member.user)} == request.auth.uid", in_tenant]
    conditions += [f"member.{_stored(schema, k)} == {_literal(v)}" for k, v in sorted(member.when.items())]
    conditions.append(f"{role} in roles")
    place = schema.path.names[0].replace("{env}", env)
    rest = f" + {_literal(identity.separator)} + tenant" if isinstance(identity, CompositeId) else ""
    document = f"$(request.auth.uid{rest})"
    return (
        f"    function {name}(tenant, roles) {{\n"
        f"      let member = get(/databases/$(database)/documents/{place}/{document}).data;\n"
        f"      return {_all(conditions, '        ')};\n    }}\n"
    )


def _block(schema: Schema[Any], env: str) -> str:
    names = [name.replace("{env}", env) for name in schema.path.names]
    pairs = zip(names, schema.path.parameters, strict=True)
    place = "".join(f"/{name}/{{{_variable(parameter)}}}" for name, parameter in pairs)
    rules = {
        "get": _words(schema, schema.access.read, data=_OLD),
        "list": _words(schema, schema.access.read, data=_OLD, listing=True),
        "create": _create(schema),
        "update": _update(schema),
        "delete": None if schema.append_only else _words(schema, schema.access.delete, data=_OLD),
    }
    if rules["get"] == rules["list"]:
        rules = {"read": rules["get"], **{k: v for k, v in rules.items() if k not in ("get", "list")}}
    return _match(place, rules)


def _group_block(schema: Schema[Any], env: str) -> str:
    """Queries over all parents match by the collection's name alone."""
    place = f"/{{parents=**}}/{schema.path.group(env)}/{{{_variable(schema.path.parameters[-1])}}}"
    return _match(place, {"list": _words(schema, schema.access.read, data=_OLD, listing=True, group=True)})


def _match(place: str, rules: dict[str, str | None]) -> str:
    lines = [f"      allow {action}: if {rule};\n" for action, rule in rules.items() if rule]
    return f"    match {place} {{\n{''.join(lines)}    }}\n"


def _asked_across(schema: Schema[Any]) -> bool:
    hidden = schema.tenant is not None and schema.declared.tenant in schema.declared.path_only
    return schema.path.nested and not hidden and any(i.across != "nothing" for i in schema.indexes)


def _create(schema: Schema[Any]) -> str | None:
    who = _words(schema, schema.access.create, data=_NEW)
    if who is None:
        return None
    conditions = [who, *_ids_kept(schema)]
    if schema.lifecycle:
        state = f"{_NEW}.{_stored(schema, schema.lifecycle.field)}"
        conditions.append(f"{state} in {_list(sorted(schema.lifecycle.initial))}")
    return _all(conditions, "        ")


def _update(schema: Schema[Any]) -> str | None:
    before = _words(schema, schema.access.update, data=_OLD)
    after = _words(schema, schema.access.update, data=_NEW, tenant_data=_OLD)
    if before is None or after is None or schema.append_only:
        return None
    conditions = [*dict.fromkeys([before, after]), *_ids_kept(schema)]
    fixed = [_stored(schema, name) for name in schema.immutable if name not in schema.path.parameters]
    if fixed:
        conditions.append(f"!{_NEW}.diff({_OLD}).affectedKeys().hasAny({_list(fixed)})")
    if schema.lifecycle:
        conditions.append(_moves(schema))
    if schema.claim:
        fence = _stored(schema, schema.claim.fence)
        conditions.append(f"{_NEW}.{fence} >= {_OLD}.{fence}")
    return _all(conditions, "        ")


def _moves(schema: Schema[Any]) -> str:
    assert schema.lifecycle is not None
    field = _stored(schema, schema.lifecycle.field)
    legal = ", ".join(
        f"{_literal(state)}: {_list(sorted(to))}" for state, to in sorted(schema.lifecycle.moves.items())
    )
    stays = f"{_NEW}.{field} == {_OLD}.{field}"
    return f"({stays} || {_NEW}.{field} in {{{legal}}}.get({_OLD}.{field}, []))"


def _ids_kept(schema: Schema[Any]) -> list[str]:
    """A document says of itself what its path says, and an id made from fields stays made from them."""
    names = [name for name in schema.path.parameters if name not in schema.declared.path_only]
    conditions = [f"{_NEW}.{_stored(schema, name)} == {_variable(name)}" for name in names]
    identity = schema.declared.id
    if isinstance(identity, CompositeId):
        joint = f" + {_literal(identity.separator)} + "
        made = joint.join(f"string({_NEW}.{_stored(schema, name)})" for name in identity.fields)
        conditions.append(f"{_variable(schema.path.parameters[-1])} == {made}")
    return conditions


def _words(
    schema: Schema[Any],
    words: Sequence[str],
    *,
    data: str,
    tenant_data: str | None = None,
    listing: bool = False,
    group: bool = False,
) -> str | None:
    """Any word lets in. Look-ups come last: those before them cost nothing."""
    if "public" in words:
        return "true"
    tests = [
        call for word, call in (("signed_in", "signedIn()"), ("service", "isService()")) if word in words
    ]
    for name in sorted(word[5:] for word in words if word.startswith("self:")):
        from_path = name in schema.path.parameters and not listing
        person = _known(schema, name, data=data, from_path=from_path)
        tests.append(f"(signedIn() && {person} == request.auth.uid)")
    weakest = min((ROLES.index(word) for word in words if word in ROLES), default=None)
    tenant = _tenant(schema, data=tenant_data or data, listing=listing, group=group)
    if weakest is not None:
        tests.append(f"hasRole({tenant}, {_list(ROLES[weakest:])})")
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else f"({' || '.join(tests)})"


def _tenant(schema: Schema[Any], *, data: str, listing: bool, group: bool) -> str:
    name = schema.declared.tenant
    if name is None:
        return _literal(NO_TENANT)
    parents = schema.path.parameters[:-1]
    # A query knows the ids above it unless it goes over all parents; it never knows the last one.
    in_path = not group if name in parents else name in schema.path.parameters and not listing
    return _known(schema, name, data=data, from_path=in_path)


def _known(schema: Schema[Any], name: str, *, data: str, from_path: bool) -> str:
    return _variable(name) if from_path else f"{data}.{_stored(schema, name)}"


def _stored(schema: Schema[Any], name: str) -> str:
    return schema.fields[name].encode_name


def _variable(parameter: str) -> str:
    return f"{parameter}_" if parameter in _TAKEN else parameter


def _all(conditions: Sequence[str], indent: str) -> str:
    return f"\n{indent}&& ".join(conditions)


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(_literal(value) for value in values)}]"


def _literal(value: str | int | bool | None) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    quoted = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{quoted}'"
