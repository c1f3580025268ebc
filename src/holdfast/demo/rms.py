"""Controls that break and restore the simulated RMS, for every scene that sends to it."""

from __future__ import annotations

from typing import Final

from holdfast.demo.scene import Control, Stage
from holdfast.simulators.rms import Behave, RmsSimulator


def _break_control(name: str, label: str, *, behaviour: Behave, message: str) -> Control:
    async def run(stage: Stage) -> str:
        stage.world.get(RmsSimulator).run(behaviour)
        return message

    return Control(name=name, label=label, kind="danger", run=run)


async def restore_rms(stage: Stage) -> str:
    """Restore the RMS, and every endpoint that its responses disabled."""
    stage.world.get(RmsSimulator).run(Behave())
    for scene in stage.scenes.values():
        await scene.on_restored(stage)
    return "The RMS accepts everything again. Dead letters can be replayed."


RMS_CONTROLS: Final = (
    _break_control(
        "break", "Break the RMS", behaviour=Behave(failure_rate=1.0),
        message="The RMS answers 503 to everything: deliveries are retried, then become dead letters.",
    ),
    _break_control(
        "flaky", "Fail 30 %", behaviour=Behave(failure_rate=0.3),
        message="30 % are answered 503: nearly all are delivered after a retry.",
    ),
    _break_control(
        "slow", "Slow it down", behaviour=Behave(delay_s=3.0),
        message="Every response takes 3 seconds: deliveries wait, and none is lost.",
    ),
    _break_control(
        "gone", "Answer 410 Gone", behaviour=Behave(failure_rate=1.0, failure_status=410),
        message="410 Gone: the next delivery disables its endpoint.",
    ),
    Control(name="restore", label="Restore the RMS", run=restore_rms),
)  # fmt: skip


def describe_behaviour(stage: Stage) -> str:
    behaviour = stage.world.get(RmsSimulator).state.behaviour
    failing = f"{behaviour.failure_status} to {behaviour.failure_rate:.0%}" if behaviour.failure_rate else ""
    slow = f"after {behaviour.delay_s:.0f} s" if behaviour.delay_s else ""
    return ", ".join(filter(None, [failing, slow])) or "200 to everything"
