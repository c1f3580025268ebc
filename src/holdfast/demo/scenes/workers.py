"""A second worker process: kill it, and see that nothing is lost."""

from __future__ import annotations

from holdfast.demo.scene import Control, Fact, Scene, Stage


async def start(stage: Stage) -> None:
    stage.world.second.start(stage.runtime.config)


async def kill(stage: Stage) -> str:
    if not stage.world.second.kill():
        return "It is dead already; start it again."
    return "Killed, with whatever it held. What it had claimed is taken over when its lease ends."


async def revive(stage: Stage) -> str:
    await start(stage)
    return "It works again."


async def facts(stage: Stage) -> list[Fact]:
    pid = stage.world.second.pid
    return [("The second worker", f"works as process {pid}" if pid else "is dead; the first does it all")]


scene = Scene(
    title="Workers",
    about="Two processes share the work. Kill one in the midst of it: the other goes on under new fences.",
    open=start,
    controls=[
        Control(name="kill", label="Kill a worker", kind="danger", run=kill),
        Control(name="revive", label="Start it again", run=revive),
    ],
    facts=facts,
)
