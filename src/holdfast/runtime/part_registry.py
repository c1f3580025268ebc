"""The parts of the kit that a process has by name: the kit's own, and those that services announce."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from holdfast.errors import DeclarationError
from holdfast.model import Document

KIT_PART: Final = "holdfast"


class _Models(Protocol):
    @property
    def all(self) -> tuple[type[Document], ...]: ...


class _NamedPart(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def models(self) -> _Models: ...


P = TypeVar("P", bound=_NamedPart)


def name_parts(what: str, own: P, announced: Iterable[P], *, plural: str = "") -> dict[str, P]:
    """The parts by name, the kit's own first; DeclarationError where two share a name or a document class."""
    named, owners = {own.name: own}, dict.fromkeys(own.models.all, own.name)
    for part in announced:
        if part.name in named:
            raise DeclarationError(f"two {plural or what + 's'} are named {part.name!r}; rename one")
        shared = [cls for cls in part.models.all if owners.setdefault(cls, part.name) != part.name]
        if shared:
            raise DeclarationError(
                f"{what} {part.name!r} shares {shared[0].__name__} with {owners[shared[0]]!r}; "
                "declare a subclass of its own"
            )
        named[part.name] = part
    return named
