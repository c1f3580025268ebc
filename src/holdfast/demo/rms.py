"""Ways to break and mend the simulated revenue-management system, for every scene that sends to it."""

from __future__ import annotations

from typing import Final

from holdfast.demo.scene import Control, Stage
from holdfast.simulators.rms import Behave, RmsSimulator


def _breaking(name: str, label: str, *, behaviour: Behave, said: str) -> Control:
    async def run(stage: Stage) -> str:
        stage.world.the(RmsSimulator).run(behaviour)
        return said

    return Control(name=name, label=label, kind="danger", run=run)


async def mend(stage: Stage) -> str:
    """The RMS is well again, and so is every endpoint that its answers switched off."""
    stage.world.the(RmsSimulator).run(Behave())
    for scene in stage.scenes.values():
        await scene.mended(stage)
    return "The RMS takes everything again. What was given up can be replayed."


RMS_CONTROLS: Final = (
    _breaking(
        "break", "Break the RMS", behaviour=Behave(failure_rate=1.0),
        said="The RMS answers 503 to everything: deliveries are tried again, then become dead letters.",
    ),
    _breaking(
        "flaky", "Fail 30 %", behaviour=Behave(failure_rate=0.3),
        said="Three in ten are answered 503: nearly all arrive after a retry.",
    ),
    _breaking(
        "slow", "Slow it down", behaviour=Behave(delay_s=3.0),
        said="Every answer takes 3 seconds: deliveries wait, and none is lost.",
    ),
    _breaking(
        "gone", "Answer 410 Gone", behaviour=Behave(failure_rate=1.0, failure_status=410),
        said="410 says: never again. The next delivery switches its endpoint off.",
    ),
    Control(name="mend", label="Mend the RMS", run=mend),
)  # fmt: skip


def answers(stage: Stage) -> str:
    """How the RMS answers now, in words."""
    behaviour = stage.world.the(RmsSimulator).state.behaviour
    failing = f"{behaviour.failure_status} to {behaviour.failure_rate:.0%}" if behaviour.failure_rate else ""
    slow = f"after {behaviour.delay_s:.0f} s" if behaviour.delay_s else ""
    return ", ".join(filter(None, [failing, slow])) or "200 to everything"
