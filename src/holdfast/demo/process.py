"""The process of a demo: simulators first, then the server over them; all end together."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

import msgspec
import uvloop

from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.demo.ready_message import ready_message
from holdfast.demo.scene import Scene, find_scenes
from holdfast.demo.service import SceneRunner, demo_service
from holdfast.demo.sign_in import simulated_issuer
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import ConfigError
from holdfast.private_files import make_folder
from holdfast.runtime import Runtime, find_services, select_services
from holdfast.server import address_of, listen, live
from holdfast.service import Service

LOOPBACK: Final = "127.0.0.1"
LOCK_FILE: Final = "demo.lock"


def run_demo(config: Config) -> None:
    """Run until SIGINT or SIGTERM. Data stays in `config.home` for the next start.

    Raises `ConfigError` in production, when the address is taken, and for a store that is no demo's.
    """
    if config.environment == "production":
        raise ConfigError(
            "the demo writes sample data; it does not run with HOLDFAST_ENV=production", "environment"
        )
    with (
        listen(config.host, config.port) as listener,
        _lock(config.home),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_run(config, listener))


def _lock(home: Path) -> TextIO:
    """Lock the folder: two demos in one would point each other's endpoints at their own simulators."""
    try:
        make_folder(home)
        file = (home / LOCK_FILE).open("a")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        message = f"another demo is running in {home}; stop it, or choose another folder with HOLDFAST_HOME"
        raise ConfigError(message, "home") from None
    except OSError as fault:
        message = f"can't write in {home}: {fault.strerror or fault}; choose another with HOLDFAST_HOME"
        raise ConfigError(message, "home") from None
    return file


async def _run(config: Config, listener: socket.socket) -> None:
    # Simulators and a browser on this machine must reach it, also when it listens on all interfaces.
    url = config.public_url or address_of(listener).replace("0.0.0.0", LOOPBACK).replace("[::]", "[::1]")
    services = select_services(find_services(), config.services)
    scenes = _select_scenes(find_scenes(), services)
    async with SimulatorSet(clock=SystemClock(), public_url=url) as world:
        settings = {
            name: scene.settings(world) for name, scene in scenes.items() if scene.settings is not None
        }
        _remove_settings(settings)
        # Services of other packages have no scene, and keep their own settings.
        others = {name: table for name, table in config.service_settings.items() if name not in settings}
        config = msgspec.structs.replace(
            config, public_url=url, service_settings={**others, **settings}, allow=(*config.allow, LOOPBACK),
            oidc=(*config.oidc, simulated_issuer(world)),
        )  # fmt: skip

        scene_runner = SceneRunner(scenes, world)

        async def on_ready(runtime: Runtime, address: str) -> None:
            await scene_runner.begin(runtime)
            sys.stdout.write(await ready_message(runtime, world))
            sys.stdout.flush()

        await live(config, listener, services=[demo_service(scene_runner), *services], greet=on_ready)


def _select_scenes(scenes: Mapping[str, Scene], services: Sequence[Service]) -> dict[str, Scene]:
    """The scenes of installed services, and those without a service."""
    names = {service.name for service in services}
    return {name: scene for name, scene in scenes.items() if scene.settings is None or name in names}


def _remove_settings(settings: Mapping[str, Mapping[str, object]]) -> None:
    """Remove the environment's settings of services: real credentials have no place in a demo."""
    for service in settings:
        for variable in [one for one in os.environ if one.startswith(f"HOLDFAST_{service.upper()}_")]:
            del os.environ[variable]
