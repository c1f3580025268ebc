"""Rows and responses made of documents."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


def project(source: object, cls: type[S], **given: Any) -> S:
    """Return a `cls` with what is given, and for its other fields what `source` has by the same name.

    Example: `project(user, UserRow, name=user.id)`
    """
    names = (name for name in cls.__struct_fields__ if name not in given and hasattr(source, name))
    return cls(**{name: getattr(source, name) for name in names}, **given)
