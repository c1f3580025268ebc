"""Schemas: document classes compiled to what an engine needs to store them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET
from msgspec import inspect as mi

from holdfast.errors import DeclarationError, HoldfastError, WrongTypeError
from holdfast.model.access import SERVICE_ONLY
from holdfast.model.body_validation import body_validator
from holdfast.model.columns import Column, ReadableKind, find_field, is_hidden, readable_kind
from holdfast.model.declaration import Declaration, FieldResolver
from holdfast.model.document_size import check_size
from holdfast.model.identity import id_assigner, ids_assigner
from holdfast.model.index_entries import IndexEntries
from holdfast.model.path import key_reader, keys_reader, split_key
from holdfast.model.values import FieldChecks

D = TypeVar("D", bound=msgspec.Struct)

_ENCODER: Final = msgspec.json.Encoder()
_ANY_DECODER: Final = msgspec.json.Decoder()
_CHANGES_MAX: Final = 1_000


def values_reader(columns: tuple[Column, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads all columns of a document, in one call where each is a plain field."""
    if len(columns) > 1 and all(isinstance(c.read, attrgetter) and c.kind != "open" for c in columns):
        return attrgetter(*(c.path for c in columns))
    return lambda document: tuple([column.value(document) for column in columns])


def _no_values(document: Any) -> None:
    return None


def _are_filled(position: int, rows: Iterable[tuple[Any, ...]]) -> bool:
    """Whether all values at a position are text and not empty; documents share them, so each once."""
    return all(value and isinstance(value, str) for value in set(map(itemgetter(position), rows)))


def _is_broken_text(value: Any) -> bool:
    try:
        _ENCODER.encode([] if value is UNSET else value)
    except UnicodeEncodeError:
        return True
    return False


def _validation_error(fault: Exception, name: str) -> WrongTypeError:
    """The decoder's error in words of the class and the field: `Note.text: expected str, got int`."""
    message, _, path = str(fault).partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    text = message[:1].lower() + message[1:].replace("`", "")
    return WrongTypeError(f"{name}.{field}: {text}" if field else f"{name}: {text}", field or None)


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A validated document, ready for an engine: its key, its JSON, its columns."""

    key: str
    tenant: str | None
    body: bytes
    values: tuple[Any, ...]


class Schema(Generic[D]):
    """The compiled declaration of one document class; see `schema_of`."""

    def __init__(self, cls: type[D], declared: Declaration) -> None:
        self.cls = cls
        self.declared = declared
        self.name = cls.__name__
        try:
            info = mi.type_info(cls)
        except (TypeError, NameError) as fault:
            raise DeclarationError(f"{cls.__name__}: {fault}") from None
        assert isinstance(info, mi.StructType)
        self.fields: dict[str, mi.Field] = {f.name: f for f in info.fields}
        names = FieldResolver(declared, self.fields, self.name)
        self.path, self._columns = names.path, names.columns
        self.key_of = key_reader(self.path.parameters)
        # Generates an id that is still empty, as declared.
        self.assign_id = id_assigner(declared.id, self.path.parameters[-1], self.fields)
        self.keys_of = keys_reader(self.path.parameters)
        # Where an id alone is the key.
        self._assign_ids: Callable[[Sequence[D]], list[str] | None] = (
            (lambda documents: None)
            if len(self.path.parameters) > 1
            else ids_assigner(declared.id, self.path.parameters[-1], self.fields)
        )
        self.tenant, self.tenant_is_parent = names.tenant, names.tenant_is_parent
        self.lifecycle, self.claim, self.retention = declared.lifecycle, declared.claim, declared.retention
        self.access, self.append_only = declared.access or SERVICE_ONLY, declared.append_only
        self.membership = declared.membership
        self.indexes = names.indexes()
        names.check()
        names.add_columns()
        self.immutable = names.immutable()
        self.immutable_values = attrgetter(*self.immutable) if self.immutable else _no_values
        self.state = names.column(self.lifecycle.field) if self.lifecycle else None
        # Fields that a claim changes: engines may change them without rewriting the JSON.
        self.claim_columns = names.claim_columns()
        self.columns: tuple[Column, ...] = tuple(self._columns.values())
        # Fields that SQL engines show as columns derived from the JSON, by their stored names.
        stored = {column.stored for column in self.columns}
        self.readable: dict[str, ReadableKind] = {
            f.encode_name: readable_kind(f.type)
            for f in info.fields
            if declared.all_columns and f.encode_name not in stored and f.name not in declared.path_only
        }
        self.hidden = frozenset(f.name for f in info.fields if is_hidden(f.type))
        self._entries = IndexEntries(self.columns, self.indexes)
        self._short, self._path_only = self._entries.short, declared.path_only
        self._never_empty = tuple(self.columns.index(column) for column in names.never_empty())
        self._state_at = 0 if self.state is None else self.columns.index(self.state)
        self._tenant_at = None if self.tenant is None else self.columns.index(self.tenant)
        self.moves_checked = bool(self.lifecycle or self.immutable or self.append_only or self.claim)
        self._decoder = msgspec.json.Decoder(cls)
        self._validate, self._validate_many = body_validator(info, self._decoder.decode, self._columns)
        self.values = values_reader(self.columns)
        self.checks = FieldChecks(info.fields)
        self._checks_of_changes: dict[tuple[str, ...], FieldChecks | None] = {}
        self._version = self._version_decoder()
        # Set where the stored JSON is the complete document as declared now.
        plain = not declared.path_only and self._version is None
        self.decode: Callable[[bytes | str], D] | None = self._decoder.decode if plain else None

    def prepare(self, document: D) -> Prepared:
        """Validate and encode a document; the first error raises with the field's path."""
        if type(document) is not self.cls:
            raise WrongTypeError(f"expected a {self.name}, got a {type(document).__name__}")
        return self._encoded(document, self.key_of(document), self.checks)

    def prepare_new(self, documents: Sequence[D]) -> list[Prepared] | None:
        """Assign ids and prepare many documents at once; None where one of them has to be looked at alone.

        Each step is taken for all of them, because calls between the steps of one take longer than some of
        the steps. What is not plain or not valid is left to `prepare`, which repairs or refuses it.
        """
        if self._path_only or set(map(type, documents)) != {self.cls}:
            return None
        try:
            keys = self._assign_ids(documents)
            if keys is None:
                for document in documents:
                    self.assign_id(document)
                keys = self.keys_of(documents)
            if not self.checks.change_none(documents):
                return None
            bodies = list(map(_ENCODER.encode, documents))
            values = list(map(self.values, self._validate_many(documents, bodies)))
            if not self._are_short(keys, bodies):
                for row, key, body in zip(values, keys, bodies, strict=True):
                    if len(body) + 8 * len(key) > self._short or b"\\" in body:
                        self._check_limits(row, key, body)
            if not all(_are_filled(position, values) for position in self._never_empty):
                return None
        except (HoldfastError, msgspec.ValidationError, TypeError, AttributeError, UnicodeEncodeError):
            return None
        tenants = repeat(None) if self._tenant_at is None else map(itemgetter(self._tenant_at), values)
        return list(map(Prepared, keys, tenants, bodies, values))

    def _are_short(self, keys: Iterable[str], bodies: Collection[bytes]) -> bool:
        """Whether none of many documents needs to be measured."""
        longest = max(map(len, bodies)) + 8 * max(map(len, keys))
        return longest <= self._short and b"\\" not in b"".join(bodies)

    def prepare_changed(self, document: D, key: str, changes: Iterable[str]) -> Prepared:
        """Validate and encode a stored document of which only these paths have changed."""
        paths = tuple(changes)
        try:
            checks = self._checks_of_changes[paths]
        except KeyError:
            checks = self._choose_checks(paths)
        return self.prepare(document) if checks is None else self._encoded(document, key, checks)

    def _choose_checks(self, paths: tuple[str, ...]) -> FieldChecks | None:
        """Return the checks for changes of these paths, None where they may change the key."""
        heads = {path.partition(".")[0] for path in paths}
        checks = self.checks.only(heads) if heads.isdisjoint(self.path.parameters) else None
        if len(self._checks_of_changes) >= _CHANGES_MAX:
            self._checks_of_changes.clear()
        self._checks_of_changes[paths] = checks
        return checks

    def encode(self, document: D) -> bytes:
        """Encode a document with its id for `prepare_encoded`, which validates it."""
        self.assign_id(document)
        try:
            return _ENCODER.encode(document)
        except (TypeError, AttributeError, UnicodeEncodeError) as fault:
            raise self._wrong_type(document, fault) from None

    def prepare_encoded(self, body: bytes) -> Prepared:
        """Validate a document that `encode` encoded, perhaps in another process."""
        try:
            document = self._decoder.decode(body)
        except msgspec.DecodeError as fault:
            raise _validation_error(fault, self.name) from None
        key = self.key_of(document)
        self.assign_id(document)
        if self.checks.changes(document):
            return self.prepare(document)
        return self._whole(document, key, body)

    def _encoded(self, document: D, key: str, checks: FieldChecks) -> Prepared:
        try:
            changed = checks.changes(document)
            if changed is not None:
                for name, value in changed.items():
                    msgspec.structs.force_setattr(document, name, value)
            body = _ENCODER.encode(document)
            validate = self._validate
            whole = self._decoder.decode(body) if validate is None else validate(document, body)
        except (msgspec.ValidationError, TypeError, AttributeError, UnicodeEncodeError) as fault:
            raise self._wrong_type(document, fault) from None
        return self._whole(whole, key, body)

    def _whole(self, document: D, key: str, body: bytes) -> Prepared:
        values = self.values(document)
        if len(body) + 8 * len(key) > self._short or b"\\" in body:
            self._check_limits(values, key, body)
        for position in self._never_empty:
            if not values[position] or not isinstance(values[position], str):
                column = self.columns[position]
                raise WrongTypeError(f"{column.path} is text and not empty", column.stored)
        tenant = None if self._tenant_at is None else values[self._tenant_at]
        if self._path_only:
            body = self._without_path_fields(body)
        return Prepared(key, tenant, body, values)

    def _check_limits(self, values: tuple[Any, ...], key: str, body: bytes) -> None:
        check_size(body, _ANY_DECODER.decode)
        self._entries.check(values, key, body)

    def _wrong_type(self, document: D, fault: Exception) -> HoldfastError:
        if not isinstance(fault, msgspec.ValidationError):
            try:
                self._decoder.decode(_ENCODER.encode(document))
            except msgspec.ValidationError as better:
                fault = better
            except (TypeError, AttributeError, UnicodeEncodeError) as same:
                fault = same
        if isinstance(fault, UnicodeEncodeError):
            path = next((n for n in self.fields if _is_broken_text(getattr(document, n))), None)
            stored = self.fields[path].encode_name if path else None
            return WrongTypeError("text has half a surrogate pair, which UTF-8 can't encode", stored)
        return _validation_error(fault, self.name)

    def _without_path_fields(self, body: bytes) -> bytes:
        fields = _ANY_DECODER.decode(body)
        for name in self.declared.path_only:
            fields.pop(self.fields[name].encode_name, None)
        return _ENCODER.encode(fields)

    def document_of(self, prepared: Prepared) -> D:
        """Decode a prepared document: thousands may wait for their commit, and few are needed decoded."""
        return self.load(prepared.body, split_key(prepared.key))

    def state_of(self, prepared: Prepared) -> Any:
        """Return the state of a prepared document."""
        assert self.state is not None
        if self.state.kind == "open":
            # The column of an open field has a sort key instead of the value.
            return self.state.read(self.document_of(prepared))
        return prepared.values[self._state_at]

    def states_of(self, documents: Iterable[Prepared]) -> set[Any]:
        """Return the states of prepared documents, most of which share one."""
        assert self.state is not None
        if self.state.kind == "open":
            return set(map(self.state_of, documents))
        at = self._state_at
        return {one.values[at] for one in documents}

    def load(self, body: bytes | str, ids: tuple[str, ...], newer: Mapping[str, Any] | None = None) -> D:
        """Decode a document from its stored JSON, upgraded where it is of an older version.

        `newer` fields, by their stored names, replace those of the JSON before the upgrade.
        """
        if not self.declared.path_only and not newer and not self.is_outdated(body):
            return self._decoder.decode(body)
        return self.from_fields({**_ANY_DECODER.decode(body), **(newer or {})}, ids)

    @property
    def version(self) -> int:
        """The version of the documents that this declaration writes."""
        field = self.fields.get("schema_version")
        return field.default if field is not None and isinstance(field.default, int) else 1

    def from_fields(self, fields: dict[str, Any], ids: tuple[str, ...]) -> D:
        """Convert a document from its stored fields, for an engine without JSON."""
        for name in self.declared.path_only:
            fields[self.fields[name].encode_name] = ids[self.path.parameters.index(name)]
        if self._version is not None:
            fields = self._upgrade(fields)
        return msgspec.convert(fields, self.cls, str_keys=True)

    def to_fields(self, document: D) -> dict[str, Any]:
        """Return stored names and values, times and bytes as themselves, for Firestore."""
        fields: dict[str, Any] = msgspec.to_builtins(document, builtin_types=(datetime, bytes), str_keys=True)
        for name in self.declared.path_only:
            fields.pop(self.fields[name].encode_name, None)
        return fields

    def _upgrade(self, fields: dict[str, Any]) -> dict[str, Any]:
        assert self._version is not None
        stored, current, _ = self._version
        version = fields.get(stored, 1)
        while version < current:
            step = self.declared.upgrades.get(version)
            fields = step(fields) if step else fields
            version += 1
            fields[stored] = version
        return fields

    def is_outdated(self, body: bytes | str) -> bool:
        """Whether a stored document is of an older version than this declaration writes."""
        if self._version is None:
            return False
        _, current, peek = self._version
        return bool(peek.decode(body).schema_version < current)

    def _version_decoder(self) -> tuple[str, int, msgspec.json.Decoder[Any]] | None:
        if not self.declared.upgrades:
            return None
        field = self.fields.get("schema_version")
        if field is None or not isinstance(field.default, int):
            raise DeclarationError(f"{self.name}: upgrades need a field `schema_version: int = N`")
        # A stored document without the field is of the first version, whatever the default is now.
        peek = msgspec.defstruct("Peek", [("schema_version", int, 1)], rename=lambda _: field.encode_name)
        return field.encode_name, field.default, msgspec.json.Decoder(peek)

    def copy(self, document: D) -> D:
        return self._decoder.decode(_ENCODER.encode(document))

    def column(self, path: str) -> Column | None:
        return self._columns.get(path)

    def check_field(self, path: str) -> None:
        """Refuse a path that names no field."""
        if path not in self.fields:
            find_field(path, self.fields, self.name)
