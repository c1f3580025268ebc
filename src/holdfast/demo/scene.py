"""Scenes: a service's settings in a demo, its sample data, its activity and its controls.

    src/holdfast/demo/scenes/renewals.py    scene = Scene(title="Renewals", about="…", settings=..., ...)

A scene whose file is not named after a service always runs, on the kit alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.clock import Clock
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import DeclarationError, NotFoundError
from holdfast.kit.outbox import Outbox
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.service import PageRequest
from holdfast.store import Store

SCENES: Final = "holdfast.demo.scenes"
EVERY_S: Final = 6.0


class Stage(msgspec.Struct, frozen=True):
    """The environment of a scene: the runtime and the simulators."""

    runtime: Runtime
    world: SimulatorSet
    scenes: Mapping[str, Scene] = {}

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    def operator(self, tenant_id: str) -> Operator:
        """The demo itself, as operations take it."""
        return self.runtime.operator(SERVICE, tenant_id, actor="demo")

    def outbox(self, tenant_id: str) -> Outbox:
        """The tenant's outbox; the dispatcher in this process sends at once."""
        return Outbox(self.store.tenant(tenant_id), local_dispatcher=self.runtime.dispatcher)

    def operations(self, service: str) -> Any:
        return self.runtime.parts[service].operations


Act: TypeAlias = Callable[[Stage], Awaitable[None]]
Fact: TypeAlias = tuple[str, str]


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A button; `run` acts and returns a sentence on what to look at."""

    name: str
    label: str
    kind: Literal["", "primary", "danger"] = ""
    run: Callable[[Stage], Awaitable[str]]


class ScenePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a scene in the demo's part of the console; its template is in the demo's folder `pages`."""

    path: str
    title: str
    template: str
    data: Callable[[Stage, PageRequest], Awaitable[Mapping[str, Any]]]


async def _nothing(stage: Stage) -> None:
    return None


async def _no_facts(stage: Stage) -> Sequence[Fact]:
    return ()


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The demo of one service.

    `settings` prepares the simulators and returns the service's settings, before it is built. `open` runs at
    every start, `seed` until it has completed once; both must be idempotent. `act` is one small event, about
    every `every_s`; `on_restored` re-enables what broke with the RMS. `facts` describe the state, refreshed
    when the topics in `live` change. `links` are pages worth a visit: path and label, besides those of the
    service, which show `tenant`. `pages` are the scene's own; what their forms send is given to `inputs`,
    which act and return a sentence as controls do.
    """

    title: str
    about: str
    settings: Callable[[SimulatorSet], Mapping[str, Any]] | None = None
    open: Act = _nothing
    seed: Act = _nothing
    act: Act = _nothing
    on_restored: Act = _nothing
    every_s: float = EVERY_S
    controls: Sequence[Control] = ()
    facts: Callable[[Stage], Awaitable[Sequence[Fact]]] = _no_facts
    links: Sequence[tuple[str, str]] = ()
    tenant: Callable[[Stage], str] | None = None
    live: Sequence[str] = ()
    pages: Sequence[ScenePage] = ()
    inputs: Mapping[str, Callable[[Stage, Mapping[str, str]], Awaitable[str]]] = {}

    def control(self, name: str) -> Control:
        """The control of this name; `NotFoundError` lists the names."""
        for one in self.controls:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self.controls)
        raise NotFoundError(f"no control {name!r} in this scene; there are: {names}")


def find_scenes() -> dict[str, Scene]:
    """All scenes, by the name of their file."""
    package = importlib.import_module(SCENES)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return {name: _scene_in(name) for name in names}


def _scene_in(name: str) -> Scene:
    module = importlib.import_module(f"{SCENES}.{name}")
    scene = getattr(module, "scene", None)
    if not isinstance(scene, Scene):
        raise DeclarationError(f"{module.__name__} must have `scene = Scene(...)`")
    return scene
