"""What `holdfast doctor` finds in an installation, asked as a person or a program asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

import holdfast
from holdfast.app import open_store
from holdfast.cli import app
from holdfast.config import Config, load_config
from holdfast.errors import ConfigError
from holdfast.kit.access import ApiTokens
from holdfast.runtime import Runtime, documents_of, find_services, settings_of, vault_of
from holdfast.service import Service


def examine(
    home: Path, *, prefix: tuple[str, ...] = (), options: tuple[str, ...] = (), **environment: str
) -> dict[str, Any]:
    """What the doctor says in this folder; exit code 0 exactly when all is fine, and never a traceback."""
    variables = {"HOLDFAST_PORT": "0", "PATH": "/usr/bin:/bin", **environment}
    apart = prefix or "PYTHONPATH" in environment
    told, code = _alone(home, variables, prefix) if apart else _here(home, variables, options)
    found: dict[str, Any] = json.loads(told)
    assert code == (0 if found["fine"] else 1)
    return found


def _here(home: Path, variables: dict[str, str], options: tuple[str, ...]) -> tuple[str, int]:
    before = structlog.get_config()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name in [one for one in os.environ if one.startswith(("HOLDFAST_", "PORT"))]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", None)
        done = CliRunner().invoke(app, ["doctor", "--json", *options])
    structlog.configure(**before)
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.stdout, done.exit_code


def _alone(home: Path, variables: dict[str, str], prefix: tuple[str, ...]) -> tuple[str, int]:
    """In a process of its own, where other packages or another disk are to be seen."""
    command = [*prefix, sys.executable, "-m", "holdfast", "doctor", "--json"]
    packages = os.pathsep.join([variables.get("PYTHONPATH", ""), str(Path(holdfast.__file__).parents[1])])
    variables = {**variables, "PYTHONPATH": packages.strip(os.pathsep)}
    done = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done.stdout, done.returncode


def faults(told: dict[str, Any]) -> list[str]:
    """Names of the faults, but for services that were given no settings here."""
    unset = {f"settings of {service.address}" for service in find_services()}
    return [one["name"] for one in told["findings"] if not one["fine"] and one["name"] not in unset]


def fault(home: Path, name: str, **environment: Any) -> str:
    """Message and remedy of the fault of this name, which must be there."""
    told = examine(home, **environment)
    assert not told["fine"]
    (found,) = [one for one in told["findings"] if one["name"] == name]
    assert not found["fine"], found
    assert found["remedy"]
    return f"{found['message']} | {found['remedy']}"


async def nothing(runtime: Runtime) -> None:
    return None


def keep(home: Path, act: Callable[[Runtime], Awaitable[None]], *, admin: bool = True) -> None:
    """Make a sound store in the folder and do something to it."""

    async def run() -> None:
        config = load_config({"home": home / ".holdfast"}, environ={})
        store = await open_store(config.store, documents_of(find_services()))
        try:
            await store.migrate()
            runtime = Runtime(config, store, _ready_services(config), vault=vault_of(config))
            await runtime.scheduler.declare()
            if admin:
                await ApiTokens(store).create("admin", role="admin")
            await act(runtime)
            await runtime.close_parts()
        finally:
            await store.close()

    (home / ".holdfast").mkdir(mode=0o700, exist_ok=True)
    asyncio.run(run())


def _ready_services(config: Config) -> list[Service]:
    """The services that need no settings."""
    ready = []
    for service in find_services():
        with contextlib.suppress(ConfigError):
            settings_of(service, config)
            ready.append(service)
    return ready


def install_service(home: Path) -> None:
    """A service of another package, whose provider takes only one token."""
    (home / "probe.py").write_text(
        dedent("""
        import msgspec
        from holdfast.errors import ReauthRequiredError
        from holdfast.service import CheckResult, Parts, Service

        class Settings(msgspec.Struct):
            token: str = "wrong"
            retries: int = 3

        def build(context):
            async def credentials():
                if context.settings.token != "right":
                    raise ReauthRequiredError("the provider refuses the token of [service.probe]")
                return CheckResult("probe credentials", True, "taken")

            return Parts(checks=[credentials])

        service = Service(name="probe", summary="Probes.", documents=[], build=build, settings=Settings)
        """)
    )
    info = home / "probe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[holdfast.services]\nprobe = probe:service\n")
