"""The TypeScript compiler: the one on the PATH, else one fetched once into a cache."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "5.9.3"
# Ignored by git; kept between runs so that only the first one needs the network.
CACHE = Path(__file__).parents[2] / ".cache" / f"typescript-{VERSION}"


@functools.cache
def find_compiler() -> Path | str:
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


def compile_typescript(tsc: Path, folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"{name}.ts").write_text(text)
    names = [f"{name}.ts" for name in files]
    command = [str(tsc), "--noEmit", "--strict", "--target", "es2022", "--module", "commonjs", *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
