"""The message that a demo prints when it is ready: what to open, and where things are."""

from __future__ import annotations

from holdfast.config import redact
from holdfast.demo.service import NAME
from holdfast.demo.sign_in import OWNER, prepare_owner
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.runtime import Runtime


async def ready_message(runtime: Runtime, world: SimulatorSet) -> str:
    """The lines; the first address signs in whoever opens it."""
    url, code = world.public_url, await prepare_owner(runtime)
    services = ", ".join(service.address for service in runtime.services if service.name != NAME)
    simulators = ", ".join(f"{name} {simulator.url}" for name, simulator in world.simulators.items())
    return "\n".join([
        "",
        f"  Try it      {url}/{NAME}/sign-in?code={code}",
        f"              (signs you in as {OWNER}, the owner; Ctrl-C stops the demo)",
        f"  Services    {services or 'none yet'}",
        f"  Simulators  {simulators}",
        "              (GET /_control there lists the commands)",
        f"  Data        {redact(runtime.config.store)}: kept for the next start",
        "",
        "",
    ])  # fmt: skip
