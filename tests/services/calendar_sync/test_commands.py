"""The commands, as typed at a terminal, against the simulated Google."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.kit.audit import AuditEvent
from holdfast.store import Query
from tests.cli.terminal import typed
from tests.services.calendar_sync.harness import ALICE, ALICE2, BOB, BOB2, Harness, calendar_harness


class Shell:
    """Runs `holdfast calendar-sync …` with the harness's settings."""

    def __init__(self, harness: Harness, home: Path) -> None:
        table = harness.config.service_settings["calendar_sync"]
        lines = [f'{name} = "{value}"' for name, value in table.items() if isinstance(value, str)]
        settings = [f'store = "{harness.config.store}"', f'public_url = "{harness.config.public_url}"']
        text = "\n".join([*settings, f'home = "{home}"', "[service.calendar_sync]", *lines, ""])
        (home / "holdfast.toml").write_text(text)
        self._home = home

    async def run(self, *words: str) -> tuple[int, str, str]:
        """Typed in a thread, so that the harness answers meanwhile."""
        return await asyncio.to_thread(typed, self._home, "calendar-sync", *words)

    async def run_apart(self, *words: str) -> tuple[int, str, str]:
        """In a process of its own."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "calendar-sync", *words, cwd=self._home,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


async def test_an_administrators_day_at_the_terminal(one_url: str, tmp_path: Path) -> None:
    async with calendar_harness(one_url, SystemClock(), tmp_path) as harness:
        shell = Shell(harness, tmp_path)
        code, _, err = await shell.run("renew")
        assert (code, "being loaded" in err) == (1, True)
        code, out, _ = await shell.run("reload")
        assert (code, out) == (0, "2 mappings: 2 new, 0 changed, 0 gone\n")
        code, out, _ = await shell.run("status")
        assert (code, out.startswith("critical: 2 mappings")) == (1, True)
        code, out, _ = await shell.run_apart("force", "--yes", "--reason", "first time")
        assert (code, out) == (0, "2 registered, 0 stopped, 0 failed\n")
        assert harness.live() == [ALICE, BOB]
        code, out, _ = await shell.run("channels", "--filter", "active", "--json")
        rows = json.loads(out)["items"]
        assert sorted(row["calendarId"] for row in rows) == [ALICE, BOB]
        code, out, _ = await shell.run("stop", rows[0]["channelId"], "--reason", "noisy")
        assert (code, out.startswith("stopped; calendar-sync-")) == (0, True)
        code, _, err = await shell.run("stop", "never-was-1")
        assert (code, err) == (1, "holdfast: no open channel 'never-was-1'\n")
        code, out, _ = await shell.run("mappings", "--json")
        assert json.loads(out)["items"] == [
            {"primary": ALICE, "secondaries": ALICE2}, {"primary": BOB, "secondaries": BOB2},
        ]  # fmt: skip
        code, _, err = await shell.run("sync", "nobody@hoge.jp")
        assert (code, "is not mapped" in err) == (1, True)
        trail = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
        actions = [
            event.action.removeprefix("calendar_sync.") for event in trail.docs if event.outcome == "done"
        ]
        assert actions == [
            "reload_requested", "mappings_reloaded", "registration_requested", "channels_forced",
            "channel_stopped",
        ]  # fmt: skip
        assert all(event.actor.startswith("cli:") for event in trail.docs)


@pytest.mark.parametrize(
    "words", [("stop",), ("renew", "--within-h", "soon"), ("channels", "--filter", "dead")]
)
def test_wrong_usage_exits_with_two(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = typed(tmp_path, "calendar-sync", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
