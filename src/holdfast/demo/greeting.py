"""What a demo says when it is ready: what to open, what to press, where things are."""

from __future__ import annotations

from holdfast.config import redact
from holdfast.demo.service import NAME
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.runtime import Runtime
from holdfast.server import first_link


async def greeting(runtime: Runtime, world: SimulatorSet) -> str:
    """The lines, with the one-time link while nobody can sign in yet."""
    url = world.public_url
    link = await first_link(runtime, url)
    services = ", ".join(service.address for service in runtime.services if service.name != NAME)
    simulators = ", ".join(f"{name} {one.url}" for name, one in world.simulators.items())
    return "\n".join([
        "",
        f"  Sign in     {link or f'{url}/sign-in'}",
        *(["              (works once, within an hour: choose a name and a password)"] if link else []),
        f"  Try it      {url}/console/{NAME}",
        f"  Services    {services or 'none yet'}",
        f"  Simulators  {simulators}",
        "              (GET /_control there lists what you can cause)",
        f"  Data        {redact(runtime.config.store)}: kept when you stop, found when you start again",
        "",
        "",
    ])  # fmt: skip
