"""The process of a demo: simulators first, then the server over them, and all of it ends together."""

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
from holdfast.demo.greeting import greeting
from holdfast.demo.scene import Scene, find_scenes
from holdfast.demo.service import SceneRunner, demo_service
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import ConfigError
from holdfast.runtime import Runtime, find_services
from holdfast.server import address_of, listen, live
from holdfast.service import Service

LOOPBACK: Final = "127.0.0.1"
LOCK_FILE: Final = "demo.lock"


def run_demo(config: Config) -> None:
    """Play until SIGINT or SIGTERM. What is kept is kept in `config.home` and found again the next time.

    Raises `ConfigError` in production, when the address can't be had, and for a store that is no demo's.
    """
    if config.environment == "production":
        raise ConfigError("a demo makes up data; it does not run with HOLDFAST_ENV=production", "environment")
    with (
        listen(config.host, config.port) as listener,
        _held(config.home),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_perform(config, listener))


def _held(home: Path) -> TextIO:
    """The folder's lock: two demos in one would point each other's endpoints at their own simulators."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = (home / LOCK_FILE).open("a")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        said = f"a demo runs in {home} already; stop it, or choose another folder with HOLDFAST_HOME"
        raise ConfigError(said, "home") from None
    except OSError as fault:
        said = f"can't write in {home}: {fault.strerror or fault}; choose another with HOLDFAST_HOME"
        raise ConfigError(said, "home") from None
    return file


async def _perform(config: Config, listener: socket.socket) -> None:
    # A simulator must reach it, and so must a browser here, also when it listens everywhere.
    url = config.public_url or address_of(listener).replace("0.0.0.0", LOOPBACK).replace("[::]", "[::1]")
    services = find_services()
    scenes = _played(find_scenes(), services)
    async with SimulatorSet(clock=SystemClock(), public_url=url) as world:
        settings = {
            name: scene.settings(world) for name, scene in scenes.items() if scene.settings is not None
        }
        _set_aside(settings)
        # Services of other packages have no scene here, and keep what they were given.
        others = {name: table for name, table in config.services.items() if name not in settings}
        config = msgspec.structs.replace(
            config, public_url=url, services={**others, **settings}, allow=(*config.allow, LOOPBACK)
        )

        troupe = SceneRunner(scenes, world)

        async def greet(runtime: Runtime, address: str) -> None:
            await troupe.begin(runtime)
            sys.stdout.write(await greeting(runtime, world))
            sys.stdout.flush()

        await live(config, listener, services=[demo_service(troupe), *services], greet=greet)


def _played(scenes: Mapping[str, Scene], services: Sequence[Service]) -> dict[str, Scene]:
    """The scenes of the services there are, and those that need none."""
    names = {service.name for service in services}
    return {name: scene for name, scene in scenes.items() if scene.settings is None or name in names}


def _set_aside(settings: Mapping[str, Mapping[str, object]]) -> None:
    """Leave a person's own settings of services out: real credentials have no place in a demo."""
    for service in settings:
        for variable in [one for one in os.environ if one.startswith(f"HOLDFAST_{service.upper()}_")]:
            del os.environ[variable]
