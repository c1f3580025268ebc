"""The exported TypeScript compiles, and says what the documents hold."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from holdfast.model import Document, schema_of
from holdfast.model.export import export
from tests.examples import gwi
from tests.examples.calendar_sync import WatchChannel

CLASSES: list[type[Document]] = [*gwi.COLLECTIONS, WatchChannel]
MODULE = export([schema_of(cls) for cls in CLASSES], "typescript")
VERSION = "5.9.3"
# Ignored by git; kept between runs so that only the first one needs the network.
CACHE = Path(__file__).parents[2] / ".cache" / f"typescript-{VERSION}"

USE = """\
import { Run, Tenant, WatchChannel } from "./documents";

export const channel: WatchChannel = {
  channelId: "calendar-sync-a-1", resourceId: "r", calendarId: "a@example.org",
  expiration: 1, registeredAt: 1, lastUpdatedAt: 1, status: "active",
};
export const agents = (run: Run): string[] => run.steps.map((step) => step.agent);
export const days = (tenant: Tenant): number => Date.parse(tenant.createdAt) / 86400000;
export const tokens = (run: Run): number => run.tokensUsed?.total ?? 0;
"""


@pytest.fixture
def tsc(request: pytest.FixtureRequest) -> Path:
    """The compiler: the one on the PATH, else one fetched once into the cache."""
    found = _compiler()
    if isinstance(found, str):
        request.node.user_properties.append(("engine-missing", f"typescript: {found}"))
        pytest.skip(found)
    return found


@functools.cache
def _compiler() -> Path | str:
    """Its path, or why there is none."""
    found = shutil.which("tsc")
    if found:
        return Path(found)
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "it needs tsc, or node and npm, on the PATH"
    if not CACHE.exists() and not _fetch():
        return "npm could not fetch the compiler"
    return CACHE / ".bin" / "tsc"


def _fetch() -> bool:
    CACHE.parent.mkdir(exist_ok=True)
    # Fetched aside and then renamed: several test processes may do this at once.
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as aside:
        command = ["npm", "install", "--prefix", aside, "--no-audit", "--no-fund", "--fetch-retries=1"]
        try:
            subprocess.run([*command, f"typescript@{VERSION}"], capture_output=True, check=True, timeout=120)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            return False
        with contextlib.suppress(OSError):
            Path(aside, "node_modules").rename(CACHE)
    return CACHE.exists()


def _compile(tsc: Path, folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.ts").write_text(text)
    names = [f"{name}.ts" for name in files]
    command = [str(tsc), "--noEmit", "--strict", "--target", "es2022", "--module", "commonjs", *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_module_compiles_strictly_and_serves_its_users(tsc: Path, tmp_path: Path) -> None:
    done = _compile(tsc, tmp_path, documents=MODULE, use=USE)
    assert (done.returncode, done.stdout) == (0, "")


WRONG = {
    "state": ('"active"', '"paused"'),
    "type": ("expiration: 1", 'expiration: "1"'),
    "required": ('resourceId: "r",', ""),
    "optional": ("?.total", ".total"),
    "unknown": ("step.agent", "step.colour"),
}


def test_the_compiler_refuses_what_the_declaration_refuses(tsc: Path, tmp_path: Path) -> None:
    assert all(right in USE for right, _ in WRONG.values())
    uses = {name: USE.replace(right, wrong) for name, (right, wrong) in WRONG.items()}
    done = _compile(tsc, tmp_path, documents=MODULE, **uses)
    assert done.returncode != 0
    assert {line.partition(".ts(")[0] for line in done.stdout.splitlines() if ".ts(" in line} == set(WRONG)


def test_interfaces_carry_stored_names_states_and_descriptions() -> None:
    assert "export interface WatchChannel {" in MODULE
    assert '  status: "active" | "expired" | "stopped";' in MODULE
    assert "  /** Google's; needed to stop the channel. */\n  resourceId: string;" in MODULE
    assert "  tokensUsed?: RunTokens;" in MODULE
    assert "Kept at gwi_runs/{run_id}/steps/{id}" in MODULE
