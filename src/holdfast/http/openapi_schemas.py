"""JSON Schemas of what routes take and give, by msgspec, which also decodes and encodes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.typing import FieldDefinition

_PLACE: Final = "#/components/schemas/{name}"


class Schemas:
    """The schemas of all classes that routes name, with the docstrings of the classes as descriptions.

    The framework's own lose bounds of optional fields, and take the end of `tuple[str, ...]` for a type.
    """

    def __init__(self, handlers: Iterable[HTTPRouteHandler], errors: Iterable[Any]) -> None:
        found = dict.fromkeys(kind for handler in handlers for kind in _classes(handler))
        kinds = list(found | dict.fromkeys(errors))
        references, self.components = msgspec.json.schema_components(kinds, ref_template=_PLACE)
        self._references = dict(zip(kinds, references, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        """The reference to a class's schema, or to those of several: `A | B`."""
        kinds = get_args(kind) or (kind,)
        found = [self._references[one] for one in kinds]
        return found[0] if len(found) == 1 else {"anyOf": found}


def _classes(handler: HTTPRouteHandler) -> Iterator[Any]:
    signature = handler.parsed_fn_signature
    yield from _structs(signature.return_type)
    if body := signature.parameters.get("data"):
        yield from _structs(body)
    for kind in (handler.opt.get("body"), *handler.opt.get("answers", {}).values()):
        yield from get_args(kind) or ([kind] if kind else [])


def _structs(field: FieldDefinition) -> Iterator[Any]:
    if isinstance(field.annotation, type) and issubclass(field.annotation, msgspec.Struct):
        yield field.annotation
    for inner in field.inner_types:
        yield from _structs(inner)
