"""The message that a demo prints when it is ready: what to open, and where things are."""

from __future__ import annotations

from holdfast.config import redact
from holdfast.demo.service import NAME
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.runtime import Runtime
from holdfast.server import first_link


async def ready_message(runtime: Runtime, world: SimulatorSet) -> str:
    """The lines, with the one-time sign-in link while there is no user yet."""
    url = world.public_url
    link = await first_link(runtime, url)
    services = ", ".join(service.address for service in runtime.services if service.name != NAME)
    simulators = ", ".join(f"{name} {simulator.url}" for name, simulator in world.simulators.items())
    return "\n".join([
        "",
        f"  Sign in     {link or f'{url}/sign-in'}",
        *(["              (valid once, for an hour: choose a name and a password)"] if link else []),
        f"  Try it      {url}/console/{NAME}",
        f"  Services    {services or 'none yet'}",
        f"  Simulators  {simulators}",
        "              (GET /_control there lists the commands)",
        f"  Data        {redact(runtime.config.store)}: kept for the next start",
        "",
        "",
    ])  # fmt: skip
