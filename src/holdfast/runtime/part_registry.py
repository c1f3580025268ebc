"""The parts of the kit that a process has by name: the kit's own, and those that services announce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

from holdfast.errors import DeclarationError
from holdfast.kit.connections import CONNECTION_MODELS, Connections, ConsentPurpose
from holdfast.kit.runs import KIT, RunFields, Runner
from holdfast.model import Document, schema_of
from holdfast.service import Parts
from holdfast.store.catalog import Catalog

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


def purposes_by_name(parts: Mapping[str, Parts]) -> dict[str, ConsentPurpose]:
    """The consent purposes of all services; DeclarationError for a name taken or a provider missing."""
    named: dict[str, ConsentPurpose] = {}
    for service, own in parts.items():
        for purpose in own.consent_purposes:
            if purpose.name in named:
                raise DeclarationError(f"two consent purposes are named {purpose.name!r}; rename one")
            if purpose.provider not in own.oauth_providers:
                raise DeclarationError(
                    f"consent purpose {purpose.name!r}: {service} has no provider {purpose.provider!r}"
                )
            named[purpose.name] = purpose
    return named


def connections_by_collection(
    root: Connections, parts: Mapping[str, Parts], catalog: Catalog
) -> dict[str, Connections]:
    """The connections by collection, the kit's own first; DeclarationError for an unannounced one."""
    announced = [one.models for own in parts.values() for one in own.connections]
    for purpose in [one for own in parts.values() for one in own.consent_purposes]:
        if purpose.models not in (CONNECTION_MODELS, *announced):
            raise DeclarationError(
                f"announce {purpose.models.connection.__name__} of consent purpose {purpose.name!r} in "
                "Parts.connections"
            )
    if len({models.connection for models in (CONNECTION_MODELS, *announced)}) <= len(announced):
        raise DeclarationError("two services share a class of connections; declare a subclass for each")
    named = (CONNECTION_MODELS, *announced)
    return {catalog.table(schema_of(models.connection)): root.of(models) for models in named}


def add_workflows(runner: Runner, parts: Mapping[str, Parts], catalog: Catalog) -> dict[str, type[RunFields]]:
    """Have the process's runner execute all workflows; return the collections of their runs by queue."""
    queues: dict[str, type[RunFields]] = {}
    owners: dict[type[RunFields], str] = {KIT.run: KIT_PART}
    for name, one in parts.items():
        runner.add(one.workflows)
        queues |= {"runs": KIT.run} if one.workflows else {}
        for part in one.runs:
            kind = part.models.run
            if owners.setdefault(kind, name) != name:
                raise DeclarationError(
                    f"runs of {name!r} share {kind.__name__} with {owners[kind]!r}; declare its own class"
                )
            runner.add(part.workflows, models=part.models, joins=part.joins)
            if part.workflows and kind not in one.queues.values():
                queues[f"{name}.{catalog.table(schema_of(kind))}"] = kind
    return queues
