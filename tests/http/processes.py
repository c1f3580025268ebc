"""Real `holdfast` processes with the echo service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from holdfast.config import load_config
from holdfast.kit.outbox import Endpoint, EndpointSecrets, RetryPolicy, new_secret
from holdfast.runtime import Runtime
from holdfast.store import put
from tests.http.server_harness import SERVICE, TENANT

_ROOT = Path(__file__).parents[2]


def announce(folder: Path, service: str = "tests.http.server_harness:SERVICE") -> None:
    """As an installed package would: the service is found by its entry point."""
    info = folder / "echo_chamber-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-chamber\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[holdfast.services]\necho = {service}\n")


@contextlib.asynccontextmanager
async def running(
    home: Path, module: str, *arguments: str, environ: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A process that runs a module, and the first line it says."""
    own = {
        "PYTHONPATH": f"{home}{os.pathsep}{_ROOT}{os.pathsep}{_ROOT}/src",
        "HOLDFAST_HOME": str(home / "h"),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=home, env={**os.environ, **own, **(environ or {})},
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        yield process, (await process.stderr.readline()).decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def holdfast_process(
    home: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A `holdfast` process and the address in its first line, or without one the line."""
    async with running(home, "holdfast", *arguments, environ=environ) as (process, line):
        found = re.search(r"http://[^\s,]+", line)
        if found is None and arguments[0] == "serve":
            assert process.stderr is not None
            raise AssertionError(line + (await process.stderr.read()).decode())
        yield process, found[0] if found else line


async def keep_endpoint(home: Path, environ: Mapping[str, str], url: str) -> None:
    """Keep the endpoint `there` in the store that the processes share."""
    config = load_config({"home": home / "h"}, environ=environ)
    runtime = await Runtime.open(config, services=[SERVICE])
    made = Endpoint(
        id="there",
        url=url,
        created_at=runtime.clock.now(),
        timeout_s=60,
        retry=RetryPolicy(waits_s=(0.05,) * 10),
    )
    made.secrets = [EndpointSecrets(runtime.vault).seal(made, new_secret())]
    await runtime.store.tenant(TENANT).commit(put(made))
    await runtime.close()
