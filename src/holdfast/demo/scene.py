"""What a scene is: how a service is set up in a demo, its first data, what goes on, what can be caused.

    src/holdfast/demo/scenes/renewals.py    scene = Scene(title="Renewals", about="…", settings=..., ...)

A scene whose file has no service's name is played always, on the kit alone.
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
from holdfast.runtime import Runtime
from holdfast.store import Store

SCENES: Final = "holdfast.demo.scenes"
EVERY_S: Final = 6.0


class Stage(msgspec.Struct, frozen=True):
    """What a scene is played on: the running whole, and the outside worlds."""

    runtime: Runtime
    world: SimulatorSet
    scenes: Mapping[str, Scene] = {}

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def clock(self) -> Clock:
        return self.runtime.clock

    def outbox(self, tenant_id: str) -> Outbox:
        """Where events are put; the dispatcher here sends them at once."""
        return Outbox(self.store.tenant(tenant_id), local_dispatcher=self.runtime.dispatcher)

    def operations(self, service: str) -> Any:
        """What a service's own commands and pages work with."""
        return self.runtime.parts[service].operations


Act: TypeAlias = Callable[[Stage], Awaitable[None]]
Fact: TypeAlias = tuple[str, str]


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person can cause; `run` does it and says in a sentence what to look at now."""

    name: str
    label: str
    kind: Literal["", "primary", "danger"] = ""
    run: Callable[[Stage], Awaitable[str]]


async def _nothing(stage: Stage) -> None:
    return None


async def _no_facts(stage: Stage) -> Sequence[Fact]:
    return ()


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """How one service is shown.

    `settings` prepares the outside worlds and gives the service's settings, before it is built. `open` is
    played at every start, `seed` until it has come to its end once; both may be cut short anywhere and come
    again. `act` is one small thing that happens, about every `every_s`; `mended` puts right what broke with
    the RMS, once that is well again. `facts` say how it stands; they are
    told anew when the topics in `live` change. `look` are pages worth a visit: path and words.
    """

    title: str
    about: str
    settings: Callable[[SimulatorSet], Mapping[str, Any]] | None = None
    open: Act = _nothing
    seed: Act = _nothing
    act: Act = _nothing
    mended: Act = _nothing
    every_s: float = EVERY_S
    controls: Sequence[Control] = ()
    facts: Callable[[Stage], Awaitable[Sequence[Fact]]] = _no_facts
    look: Sequence[tuple[str, str]] = ()
    live: Sequence[str] = ()

    def control(self, name: str) -> Control:
        """The control of this name; `NotFoundError` names those there are."""
        for one in self.controls:
            if one.name == name:
                return one
        there = ", ".join(one.name for one in self.controls)
        raise NotFoundError(f"no control {name!r} in this scene; there are: {there}")


def find_scenes() -> dict[str, Scene]:
    """Every scene there is, by the name of its file."""
    package = importlib.import_module(SCENES)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return {name: _scene_in(name) for name in names}


def _scene_in(name: str) -> Scene:
    module = importlib.import_module(f"{SCENES}.{name}")
    scene = getattr(module, "scene", None)
    if not isinstance(scene, Scene):
        raise DeclarationError(f"{module.__name__} must have `scene = Scene(...)`")
    return scene
