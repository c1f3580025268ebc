"""What the web framework reads of route handlers, read once a run.

Hundreds of tests build the application anew out of the same functions; parsing their signatures is most of
that work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from types import FunctionType
from typing import Any

import pytest
from litestar._signature import SignatureModel
from litestar.utils.signature import ParsedSignature


def cache_signatures(patch: pytest.MonkeyPatch) -> None:
    """Let every application share parsed signatures and the models made of them."""
    parse, build = ParsedSignature.from_fn, SignatureModel.create
    parsed: dict[Hashable, ParsedSignature] = {}
    built: dict[Hashable, type[SignatureModel]] = {}

    def from_fn(fn: Callable[..., Any], signature_namespace: dict[str, Any]) -> ParsedSignature:
        key = (_identity(fn), *signature_namespace)
        if key not in parsed:
            parsed[key] = parse(fn, signature_namespace)
        # A description of the application adds parameters to what it is given.
        return replace(parsed[key], parameters={**parsed[key].parameters})

    def create(
        dependency_name_set: set[str], fn: Callable[..., Any], parsed_signature: ParsedSignature,
        type_decoders: Any, data_dto: Any = None,
    ) -> type[SignatureModel]:  # fmt: skip
        key = (_identity(fn), *parsed_signature.parameters, frozenset(dependency_name_set), data_dto)
        if key not in built:
            own = replace(parsed_signature, parameters={**parsed_signature.parameters})
            built[key] = build(dependency_name_set, fn, own, type_decoders, data_dto)
        return built[key]

    patch.setattr(ParsedSignature, "from_fn", from_fn)
    patch.setattr(SignatureModel, "create", create)


def _identity(fn: Callable[..., Any]) -> Hashable:
    """The code of a plain function, which closures share; one that was wrapped is like itself alone."""
    plain = isinstance(fn, FunctionType) and not fn.__dict__ and not fn.__kwdefaults__
    return fn.__code__ if plain and fn.__defaults__ in (None, (None,)) else fn
