"""Three-way merges through the git binary, in a temporary folder with nothing but the three versions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from holdfast.errors import ConfigError, TooLargeError
from holdfast.services.gwi.domain.conflicts import MARKER_SIZE, resolve_text

FILE_BYTES_MAX: Final = 1024 * 1024
# `git merge-file` returns the number of conflicts, at most this, and more where it failed.
_CONFLICTS_MAX: Final = 127
_ENVIRONMENT: Final = {
    "PATH": os.environ.get("PATH", os.defpath), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull,
    "LC_ALL": "C",
}  # fmt: skip


class MergedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file merged from two sides; one with `open` conflicts is a proposal, with markers in it."""

    content: bytes
    resolved: int = 0
    open: int = 0


async def merge_file(base: bytes, ours: bytes, theirs: bytes) -> MergedFile | None:
    """Merge two changes of a file; None for binary files, which only people can merge.

    Example: `(await merge_file(b"a\\n", b"a\\nb\\n", b"c\\na\\n")).content`
    """
    if max(map(len, (base, ours, theirs))) > FILE_BYTES_MAX:
        raise TooLargeError(f"a file to merge has at most {FILE_BYTES_MAX:,} bytes")
    with tempfile.TemporaryDirectory(prefix="holdfast-merge-") as folder:
        for name, content in (("base", base), ("ours", ours), ("theirs", theirs)):
            Path(folder, name).write_bytes(content)
        status, output = await _git(
            folder, "merge-file", "--stdout", "--diff3", f"--marker-size={MARKER_SIZE}", "ours", "base",
            "theirs",
        )  # fmt: skip
    if status == 0:
        return MergedFile(content=output)
    if status > _CONFLICTS_MAX:
        return None
    try:
        merged = resolve_text(output.decode())
    except UnicodeDecodeError:
        return None
    return MergedFile(content=merged.text.encode(), resolved=merged.resolved, open=merged.open)


async def _git(folder: str, *arguments: str) -> tuple[int, bytes]:
    # Not by the event loop, whose way to start a process is not safe beside other threads: `ChildProcess`.
    try:
        process = subprocess.Popen(  # noqa: ASYNC220
            ["git", *arguments], cwd=folder, env={**_ENVIRONMENT, "HOME": folder},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise ConfigError("git is not installed; install it to merge changes") from None
    try:
        output, _ = await asyncio.to_thread(process.communicate)
    except asyncio.CancelledError:
        process.kill()
        raise
    return process.returncode, output
