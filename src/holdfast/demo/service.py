"""The demo as one more service: sample data, activity and the page with the buttons."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from litestar import Request, Response, get
from litestar.params import FromPath, JSONBody

from holdfast.clock import Clock
from holdfast.demo.models import SeededScene
from holdfast.demo.scene import Scene, ScenePage, Stage
from holdfast.demo.sign_in import enter
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import ConfigError, ConflictError, NotFoundError, RetryLaterError
from holdfast.kit.access import ApiToken, User
from holdfast.kit.access.authorization import PUBLIC
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Endpoint
from holdfast.kit.worker_loop import wait_first, wait_for_wake
from holdfast.model import Document
from holdfast.operation import Operator, operation
from holdfast.routing import By, RequestBody, action_route, read_route
from holdfast.runtime import Runtime, find_services, has_documents
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
    links: Sequence[tuple[str, str]]
    controls: list[ControlRow]


class DemoOverview(msgspec.Struct, frozen=True):
    """The controls, and the addresses of the simulators."""

    scenes: list[SceneRow]
    simulators: dict[str, str]


class ControlRequest(RequestBody, frozen=True):
    """The fields of a form, where the control is one."""

    given: dict[str, str] = {}


class ControlResponse(msgspec.Struct, frozen=True):
    said: str


def demo_service(scene_runner: SceneRunner) -> Service:
    def build(context: Context) -> Parts:
        async def start() -> None:
            await _claim_store(context.store)

        return Parts(
            routes=scene_runner.routes(), pages=scene_runner.pages(), start=start,
            loops={"activity": Activity(scene_runner, context.clock)},
        )  # fmt: skip

    return Service(name=NAME, summary="Try everything out.", documents=[SeededScene], build=build)


class SceneRunner:
    """Runs the scenes of a demo, once there is a runtime."""

    def __init__(self, scenes: Mapping[str, Scene], world: SimulatorSet) -> None:
        self.scenes, self.world = scenes, world
        self.ready = asyncio.Event()
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        if self._stage is None:
            raise RetryLaterError("the demo is not ready yet")
        return self._stage

    async def begin(self, runtime: Runtime) -> None:
        """Open every scene, and seed those that are not seeded yet."""
        stage = self._stage = Stage(runtime, self.world, self.scenes)
        for name, scene in self.scenes.items():
            await scene.open(stage)
            if await stage.store.get(SeededScene, name) is None:
                await scene.seed(stage)
                await stage.store.commit(put(SeededScene(id=name, seeded_at=stage.clock.now())))
                log.info("seeded", scene=name)
        self.ready.set()

    @operation("demo.caused", area=NAME, verb="act", needs="developer", platform=True)
    async def cause(
        self, by: Operator, name: str, control: str, *, given: Mapping[str, str] | None = None
    ) -> str:
        """Run a scene's control, or give it the input of one of its forms; return what to look at now."""
        if name not in self.scenes:
            raise NotFoundError(f"no scene {name!r}; there are: {', '.join(self.scenes)}")
        scene = self.scenes[name]
        try:
            if control in scene.inputs:
                said = await scene.inputs[control](self.stage, given or {})
            else:
                said = await scene.control(control).run(self.stage)
        except LookupError as fault:
            # Somebody reset a simulator that the scene relies on.
            raise ConflictError(f"a simulator was reset ({fault}); restart the demo") from None
        await by.append(subject=f"{name}/{control}")
        return said

    def overview(self) -> DemoOverview:
        simulators = {name: one.url for name, one in self.world.simulators.items()}
        return DemoOverview([self._row(name, scene) for name, scene in self.scenes.items()], simulators)

    def _row(self, name: str, scene: Scene) -> SceneRow:
        controls = [ControlRow(one.name, one.label, one.kind) for one in scene.controls]
        look = [*self._pages_of(name, scene), *scene.links]
        return SceneRow(name, scene.title, scene.about, look, controls)

    def _pages_of(self, name: str, scene: Scene) -> list[tuple[str, str]]:
        parts, address = self.stage.runtime.parts.get(name), name.replace("_", "-")
        pages = [page for page in parts.pages if page.nav] if parts else []
        query = "" if scene.tenant is None else f"?tenant={scene.tenant(self.stage)}"
        return [(f"/console/{address}{page.path}{query}", page.title) for page in pages]

    def pages(self) -> list[Page]:
        """The page "Try it": every scene with its state and buttons; and the scenes' own pages."""
        own = [
            Page(
                path=page.path, title=page.title, template=page.template, live=scene.live,
                data=partial(self._page_data, page),
            )
            for scene in self.scenes.values()
            for page in scene.pages
        ]  # fmt: skip
        return [self._try_page(), *own]

    async def _page_data(self, page: ScenePage, ask: PageRequest) -> Mapping[str, Any]:
        return await page.data(self.stage, ask)

    def _try_page(self) -> Page:
        topics = sorted({topic for scene in self.scenes.values() for topic in scene.live})

        async def data(ask: PageRequest) -> Mapping[str, Any]:
            overview = self.overview()
            facts = [await self.scenes[row.name].facts(self.stage) for row in overview.scenes]
            scenes = [{"row": row, "facts": one} for row, one in zip(overview.scenes, facts, strict=True)]
            return {"scenes": scenes, "simulators": overview.simulators}

        return Page(path="", title="Try it", template="try.html", data=data, live=topics)

    def routes(self) -> list[Any]:
        @read_route("/scenes", "viewer", area=NAME, prefix="")
        async def scenes() -> DemoOverview:
            """The controls of this demo."""
            return self.overview()

        @action_route("/scenes/{scene:str}/{control:str}", SceneRunner.cause, prefix="")
        async def cause(
            by: By, scene: FromPath[str], control: FromPath[str], data: JSONBody[ControlRequest]
        ) -> ControlResponse:
            """Run a control on the simulators or on a service."""
            return ControlResponse(await self.cause(by, scene, control, given=data.given))

        @get("/sign-in", opt={"needs": PUBLIC}, include_in_schema=False)
        async def sign_in(request: Request[Any, Any, Any], code: str = "") -> Response[None]:
            return await enter(self.stage.runtime, request, code=code, page=f"/console/{NAME}")

        return [scenes, cause, sign_in]


async def _claim_store(store: Store) -> None:
    """Refuse a store with real data: only a new one, or a demo's, is used."""
    if await store.get(SeededScene, NAME) is None:
        # Before any sample data: an interrupted start still recognizes the store as its own.
        if not (await store.query(Query(SeededScene).limit(1))).items and await _in_use(store):
            raise ConfigError(
                "this store holds data that is not a demo's; choose another folder with HOLDFAST_HOME", "home"
            )
        await store.commit(put(SeededScene(id=NAME, seeded_at=store.clock.now())))


async def _in_use(store: Store) -> bool:
    """Whether users, tokens or services have documents there."""
    own: list[type[Document]] = [ApiToken, User, Endpoint, InboxItem]
    return await has_documents(store, [*own, *(kind for one in find_services() for kind in one.documents)])


class Activity:
    """Triggers a small event in each scene now and then."""

    def __init__(self, scene_runner: SceneRunner, clock: Clock) -> None:
        self._scene_runner, self._clock = scene_runner, clock
        self.last_turn_at: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        await wait_first(self._scene_runner.ready.wait(), stop.wait())
        try:
            await self._run_scenes(stop)
        finally:
            # Both processes stop at the same time: there are few seconds until the kill.
            self._scene_runner.world.second.request_stop()

    async def _run_scenes(self, stop: asyncio.Event) -> None:
        scenes = self._scene_runner.scenes
        due = {name: self._clock.monotonic() + scene.every_s / 2 for name, scene in scenes.items()}
        while not stop.is_set():
            self.last_turn_at = self._clock.now()
            for name, scene in scenes.items():
                if self._clock.monotonic() >= due[name]:
                    due[name] = self._clock.monotonic() + scene.every_s * random.uniform(0.5, 1.5)
                    await self._act(name, scene)
            next_due = min(due.values(), default=self._clock.monotonic() + 60.0)
            await wait_for_wake(self._clock, max(0.05, next_due - self._clock.monotonic()), stop=stop)

    async def _act(self, name: str, scene: Scene) -> None:
        try:
            await scene.act(self._scene_runner.stage)
        except Exception as fault:
            # People break things here on purpose; the next turn comes anyway.
            log.info("scene activity failed", scene=name, why=str(fault))
