"""The demo as one more service: it seeds, keeps a little going, and has the buttons to press."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from litestar.params import FromPath

from holdfast.clock import Clock
from holdfast.demo.models import Seeded
from holdfast.demo.scene import Scene, Stage
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import ConfigError, ConflictError, NotFoundError, RetryLaterError
from holdfast.kit.access import ApiToken, User
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Endpoint
from holdfast.kit.worker_loop import wait_first, wait_for_wake
from holdfast.model import Document, schema_of
from holdfast.operation import Operator, operation
from holdfast.routing import By, action_route, read_route
from holdfast.runtime import Runtime, find_services
from holdfast.service import Context, Page, PageRequest, Parts, Service
from holdfast.store import Query, Store, put

log = structlog.get_logger("holdfast.demo")

NAME: Final = "demo"


class ControlRow(msgspec.Struct, frozen=True):
    name: str
    label: str
    kind: str


class SceneRow(msgspec.Struct, frozen=True):
    name: str
    title: str
    about: str
    look: Sequence[tuple[str, str]]
    controls: list[ControlRow]


class DemoOverview(msgspec.Struct, frozen=True):
    """What can be caused, and where the simulators are."""

    scenes: list[SceneRow]
    simulators: dict[str, str]


class Caused(msgspec.Struct, frozen=True):
    said: str


def demo_service(troupe: SceneRunner) -> Service:
    """The service of one demo."""

    def build(context: Context) -> Parts:
        async def start() -> None:
            await _take(context.store)

        return Parts(
            routes=troupe.routes(), pages=[troupe.page()], start=start,
            loops={"activity": Activity(troupe, context.clock)},
        )  # fmt: skip

    return Service(name=NAME, summary="Try everything out.", documents=[Seeded], build=build)


class SceneRunner:
    """The scenes of a demo; they play once there is a stage."""

    def __init__(self, scenes: Mapping[str, Scene], world: SimulatorSet) -> None:
        self.scenes, self.world = scenes, world
        self.began = asyncio.Event()
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            raise RetryLaterError("the demo is not ready yet")
        return self._stage

    async def begin(self, runtime: Runtime) -> None:
        """Open every scene, and seed those that are not yet."""
        stage = self._stage = Stage(runtime, self.world, self.scenes)
        for name, scene in self.scenes.items():
            await scene.open(stage)
            if await stage.store.get(Seeded, name) is None:
                await scene.seed(stage)
                await stage.store.commit(put(Seeded(id=name, seeded_at=stage.clock.now())))
                log.info("seeded", scene=name)
        self.began.set()

    @operation("demo.caused", area=NAME, verb="act", needs="developer", platform=True)
    async def cause(self, by: Operator, name: str, control: str) -> str:
        """Run a scene's control and return what to look at now."""
        if name not in self.scenes:
            raise NotFoundError(f"no scene {name!r}; there are: {', '.join(self.scenes)}")
        try:
            said = await self.scenes[name].control(control).run(self.stage)
        except LookupError as fault:
            # What the scene relies on in an outside world is gone: somebody reset a simulator.
            raise ConflictError(
                f"the simulated world is not as it was ({fault}): start the demo again"
            ) from None
        await by.append(subject=f"{name}/{control}")
        return said

    def overview(self) -> DemoOverview:
        simulators = {name: one.url for name, one in self.world.simulators.items()}
        return DemoOverview([self._row(name, scene) for name, scene in self.scenes.items()], simulators)

    def _row(self, name: str, scene: Scene) -> SceneRow:
        controls = [ControlRow(one.name, one.label, one.kind) for one in scene.controls]
        look = [*self._pages_of(name), *scene.look]
        return SceneRow(name, scene.title, scene.about, look, controls)

    def _pages_of(self, name: str) -> list[tuple[str, str]]:
        """A service's own pages that stand in the navigation."""
        parts, address = self.stage.runtime.parts.get(name), name.replace("_", "-")
        pages = [page for page in parts.pages if page.nav] if parts else []
        return [(f"/console/{address}{page.path}", page.title) for page in pages]

    def page(self) -> Page:
        """Try it: every scene with how it stands and its buttons."""
        topics = sorted({topic for scene in self.scenes.values() for topic in scene.live})

        async def data(ask: PageRequest) -> Mapping[str, Any]:
            told = self.overview()
            facts = [await self.scenes[row.name].facts(self.stage) for row in told.scenes]
            scenes = [{"row": row, "facts": one} for row, one in zip(told.scenes, facts, strict=True)]
            return {"scenes": scenes, "simulators": told.simulators}

        return Page(path="", title="Try it", template="try.html", data=data, live=topics)

    def routes(self) -> list[Any]:
        @read_route("/scenes", "viewer", area=NAME, prefix="")
        async def scenes() -> DemoOverview:
            """What can be caused in this demo."""
            return self.overview()

        @action_route("/scenes/{scene:str}/{control:str}", SceneRunner.cause, prefix="")
        async def cause(by: By, scene: FromPath[str], control: FromPath[str]) -> Caused:
            """Cause something in the simulated outside worlds, or in a service."""
            return Caused(await self.cause(by, scene, control))

        return [scenes, cause]


async def _take(store: Store) -> None:
    """Made-up data has no place among real data: only a store that is new, or a demo's, is played on."""
    if await store.get(Seeded, NAME) is None:
        # Before anything is made up: who is cut short then still knows the store as their own.
        if not (await store.query(Query(Seeded).limit(1))).items and await _in_use(store):
            raise ConfigError(
                "this store is in use, and no demo's: choose another folder with HOLDFAST_HOME", "home"
            )
        await store.commit(put(Seeded(id=NAME, seeded_at=store.clock.now())))


async def _in_use(store: Store) -> bool:
    """Whether people, programs or services keep anything there; what a mere start leaves does not count."""
    models: list[type[Document]] = [ApiToken, User, Endpoint, InboxItem]
    for kind in (*models, *(kind for service in find_services() for kind in service.documents)):
        query: Query[Any] = Query(kind).limit(1)
        query = query.across_parents() if schema_of(kind).path.nested else query
        if schema_of(kind) in store.catalog and (await store.privileged().query(query)).items:
            return True
    return False


class Activity:
    """Lets a small thing happen in each scene now and then."""

    def __init__(self, troupe: SceneRunner, clock: Clock) -> None:
        self._troupe, self._clock = troupe, clock
        self.last_turn_at: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        await wait_first(self._troupe.began.wait(), stop.wait())
        try:
            await self._go_on(stop)
        finally:
            # Both processes wind down at the same time: there are few seconds until the kill.
            self._troupe.world.second.let_go()

    async def _go_on(self, stop: asyncio.Event) -> None:
        scenes = self._troupe.scenes
        due = {name: self._clock.monotonic() + scene.every_s / 2 for name, scene in scenes.items()}
        while not stop.is_set():
            self.last_turn_at = self._clock.now()
            for name, scene in scenes.items():
                if self._clock.monotonic() >= due[name]:
                    due[name] = self._clock.monotonic() + scene.every_s * random.uniform(0.5, 1.5)
                    await self._act(name, scene)
            soonest = min(due.values(), default=self._clock.monotonic() + 60.0)
            await wait_for_wake(self._clock, max(0.05, soonest - self._clock.monotonic()), stop=stop)

    async def _act(self, name: str, scene: Scene) -> None:
        try:
            await scene.act(self._troupe.stage)
        except Exception as fault:
            # People break things here on purpose; the next turn comes anyway.
            log.info("nothing happened this time", scene=name, why=str(fault))
