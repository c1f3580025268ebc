"""A second worker process: kill it, and see that nothing is lost."""

from __future__ import annotations

from holdfast.demo.scene import Control, Fact, Scene, Stage


async def start(stage: Stage) -> None:
    stage.world.second.start(stage.runtime.config)


async def kill(stage: Stage) -> str:
    if not stage.world.second.kill():
        return "It is not running; start it again."
    return "Killed. Its claims are taken over when their leases expire."


async def revive(stage: Stage) -> str:
    await start(stage)
    return "It is running again."


async def facts(stage: Stage) -> list[Fact]:
    pid = stage.world.second.pid
    return [("Second worker", f"running as process {pid}" if pid else "not running; the first does all work")]


scene = Scene(
    title="Workers",
    about="Two processes share the work. Kill one: the other takes over its claims.",
    open=start,
    controls=[
        Control(name="kill", label="Kill a worker", kind="danger", run=kill),
        Control(name="revive", label="Start it again", run=revive),
    ],
    facts=facts,
)
