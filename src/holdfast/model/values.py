"""Validation of values, so that every engine returns what was stored.

Integers fit 64 bits, floats are finite, times have a zone and are stored in UTC to the microsecond, untyped
fields have JSON values. Checks are compiled per declared type: a write runs only those its fields need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from keyword import iskeyword
from operator import is_
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec import inspect as mi

from holdfast.errors import InvalidError, TooLargeError, WrongTypeError
from holdfast.model.limits import INTEGER_MAX, INTEGER_MIN, NESTING_MAX
from holdfast.model.plain_fields import (
    PlainKind,
    all_plain_test,
    may_miss,
    plain_kind,
    plain_test,
    strip_metadata,
)

# Takes a value and its path; returns the value to store, or raises.
Check = Callable[[Any, str], Any]
# A field's name, its stored name, its check, and whether null passes it.
_FieldCheck = tuple[str, str, Check, bool]

_AS_JSON_TEXT = (
    mi.StrType, mi.BoolType, mi.BytesType, mi.DateType, mi.TimeType, mi.TimeDeltaType, mi.UUIDType,
    mi.DecimalType, mi.EnumType, mi.LiteralType, mi.NoneType,
)  # fmt: skip

_ARRAYS = (list, tuple, set, frozenset)
_HELD: dict[type[mi.Type], type | tuple[type, ...]] = {
    mi.IntType: int, mi.FloatType: float, mi.DateTimeType: datetime, mi.DictType: Mapping,
    **dict.fromkeys((mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType), _ARRAYS),
}  # fmt: skip


def check_for(kind: mi.Type) -> Check | None:
    """Return the check of a declared type, or None where msgspec's own is enough."""
    if isinstance(kind, mi.Metadata):
        return check_for(kind.type)
    if isinstance(kind, _AS_JSON_TEXT):
        return None
    if isinstance(kind, mi.IntType):
        return None if _is_bounded(kind) else check_integer
    if isinstance(kind, mi.FloatType):
        return check_number
    if isinstance(kind, mi.DateTimeType):
        return check_time
    if isinstance(kind, mi.UnionType):
        return _union(kind)
    if isinstance(kind, (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)):
        return _each(check_for(kind.item_type))
    if isinstance(kind, mi.DictType):
        return _mapping(check_for(kind.value_type))
    if isinstance(kind, mi.StructType):
        return _struct(kind)
    return check_json


def _is_bounded(kind: mi.IntType) -> bool:
    """Whether the declared bounds, which fit 64 bits, bound the number on both sides."""
    below = kind.ge is not None or kind.gt is not None
    return below and (kind.le is not None or kind.lt is not None)


def check_integer(value: Any, path: str) -> Any:
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise WrongTypeError("an integer must fit 64 bits; store larger ones as text", path)
    return value


def check_number(value: Any, path: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongTypeError("NaN and infinity can't be stored", path)
    return value


def check_time(value: Any, path: str) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is UTC:
        return value
    if value.tzinfo is None:
        raise WrongTypeError("a time needs a zone, as in datetime.now(UTC)", path)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise WrongTypeError("in UTC this time is outside the years 1 to 9999", path) from None


def check_text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise WrongTypeError("text has half a surrogate pair, which UTF-8 can't encode", path) from None
    return value


def check_operand(value: Any, path: str) -> Any:
    """Validate a single value to compare a field with."""
    if isinstance(value, str):
        return check_text(value, path)
    return check_time(check_number(check_integer(value, path), path), path)


def check_json(value: Any, path: str, depth: int = 1) -> Any:
    """Validate an untyped value: JSON values only, whose type no engine changes."""
    if value is None or value is UNSET or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return check_integer(value, path)
    if isinstance(value, float):
        return check_number(value, path)
    if depth > NESTING_MAX:
        raise TooLargeError(f"values nest at most {NESTING_MAX} deep", path)
    if isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            check_json(item, f"{path}[{position}]", depth + 1)
        return value
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise WrongTypeError(f"a mapping's keys are text, not {type(name).__name__}", path)
            check_json(item, f"{path}.{name}", depth + 1)
        return value
    raise WrongTypeError(f"a {type(value).__name__} in an untyped field; declare the field's type", path)


def _union(kind: mi.UnionType) -> Check | None:
    arms = [(_held_as(one), check) for one in kind.types if (check := check_for(one)) is not None]
    if not arms:
        return None
    if len(arms) == 1 and all(isinstance(one, mi.NoneType) for one in kind.types if check_for(one) is None):
        return _optional(arms[0][1])

    def check_arm(value: Any, path: str) -> Any:
        # Only by the check of its own type: another type's may misread it.
        for held, check in arms:
            if isinstance(value, held):
                return check(value, path)
        return value

    return check_arm


def _held_as(kind: mi.Type) -> type | tuple[type, ...]:
    kind = strip_metadata(kind)
    if isinstance(kind, mi.StructType):
        return kind.cls
    return _HELD.get(type(kind), object)


def _optional(check: Check) -> Check:
    return lambda value, path: value if value is None or value is UNSET else check(value, path)


def _each(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_each(value: Any, path: str) -> Any:
        if not value and isinstance(value, _ARRAYS):
            return value
        number, checked = 0, []
        try:
            for number, item in enumerate(value):  # noqa: B007 - the error names it
                checked.append(check(item, ""))
        except InvalidError as fault:
            raise _inside(fault, f"{path}[{number}]") from None
        return value if all(map(is_, checked, value)) else type(value)(checked)

    return check_each


def _inside(fault: InvalidError, path: str) -> InvalidError:
    """Return an item's error with the full path, which is joined only now: nearly all values are valid."""
    inner = fault.path or ""
    joint = "." if path and inner and inner[0] != "[" else ""
    return type(fault)(fault.message, f"{path}{joint}{inner}")


def _mapping(check: Check | None) -> Check | None:
    if check is None:
        return None

    def check_mapping(value: Any, path: str) -> Any:
        name = None
        changed = {}
        try:
            for name, item in value.items():
                if (new := check(item, "")) is not item:
                    changed[name] = new
        except InvalidError as fault:
            raise _inside(fault, f"{path}.{name}") from None
        return {**value, **changed} if changed else value

    return check_mapping


class FieldChecks:
    """The checks of a struct's fields, run together and in the fields' order."""

    def __init__(self, fields: Iterable[mi.Field]) -> None:
        checked = [(field, check) for field in fields if (check := check_for(field.type)) is not None]
        self._fields = [field for field, _ in checked]
        self._paths: dict[str, PlainKind] = {}
        self._all: list[_FieldCheck] = []
        self._others: list[_FieldCheck] = []
        for field, check in checked:
            one = (field.name, field.encode_name, check, _takes_null(check))
            paths = _plain_paths(field)
            self._paths.update(paths)
            self._all.append(one)
            self._others += [] if paths else [one]
        self._are_plain = plain_test(self._paths)
        self._are_all_plain = all_plain_test(self._paths)

    def __bool__(self) -> bool:
        return bool(self._all)

    def only(self, names: Container[str]) -> FieldChecks:
        """Return the checks of some fields."""
        return FieldChecks(field for field in self._fields if field.name in names)

    def changes(self, struct: Any) -> dict[str, Any] | None:
        """Return the values to store in place of those given, None where all stay; the first error raises."""
        try:
            checks = self._others if self._are_plain(struct) else self._all
        except (TypeError, AttributeError, OverflowError):
            checks = self._all
        changed = None
        for name, stored, check, nullable in checks:
            old = getattr(struct, name)
            if (old is None and nullable) or old is UNSET:
                continue
            if (new := check(old, stored)) is not old:
                changed = changed or {}
                changed[name] = new
        return changed

    def change_none(self, structs: Sequence[Any]) -> bool:
        """Whether `changes` returns None for each of many; False where only it can tell."""
        try:
            if not self._are_all_plain(structs):
                return False
        except (TypeError, AttributeError, OverflowError):
            return False
        for name, stored, check, nullable in self._others:
            for struct in structs:
                old = getattr(struct, name)
                if (old is None and nullable) or old is UNSET:
                    continue
                if check(old, stored) is not old:
                    return False
        return True


def _plain_paths(field: mi.Field) -> dict[str, PlainKind]:
    """Return the plain fields that are all a field's check looks at; none where it looks at others."""
    if iskeyword(field.name):
        return {}  # as in a class that `defstruct` made; generated code can't name it
    if (own := plain_kind(field)) is not None:
        return {field.name: own}
    kind = strip_metadata(field.type)
    if not isinstance(kind, mi.StructType) or may_miss(field):
        return {}
    inner = FieldChecks(kind.fields)
    return {} if inner._others else {f"{field.name}.{path}": one for path, one in inner._paths.items()}


def _takes_null(check: Check) -> bool:
    try:
        return check(None, "") is None
    except (InvalidError, TypeError, AttributeError):
        return False


def _struct(kind: mi.StructType) -> Check | None:
    checks = FieldChecks(kind.fields)
    if not checks:
        return None

    def check(value: Any, path: str) -> Any:
        try:
            changed = checks.changes(value)
        except InvalidError as fault:
            raise _inside(fault, path) from None
        return msgspec.structs.replace(value, **changed) if changed else value

    return check
