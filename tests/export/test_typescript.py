"""The exported TypeScript compiles, and says what the documents hold."""

from __future__ import annotations

from pathlib import Path

from holdfast.model import Document, schema_of
from holdfast.model.export import export
from tests.examples import gwi
from tests.examples.calendar_sync import WatchChannel
from tests.export.typescript_compiler import compile_typescript

CLASSES: list[type[Document]] = [*gwi.COLLECTIONS, WatchChannel]
MODULE = export([schema_of(cls) for cls in CLASSES], "typescript")

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


def test_the_module_compiles_strictly_and_serves_its_users(tsc: Path, tmp_path: Path) -> None:
    done = compile_typescript(tsc, tmp_path, documents=MODULE, use=USE)
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
    done = compile_typescript(tsc, tmp_path, documents=MODULE, **uses)
    assert done.returncode != 0
    assert {line.partition(".ts(")[0] for line in done.stdout.splitlines() if ".ts(" in line} == set(WRONG)


def test_interfaces_carry_stored_names_states_and_descriptions() -> None:
    assert "export interface WatchChannel {" in MODULE
    assert '  status: "active" | "expired" | "stopped";' in MODULE
    assert "  /** Google's; needed to stop the channel. */\n  resourceId: string;" in MODULE
    assert "  tokensUsed?: RunTokens;" in MODULE
    assert "Stored at gwi_runs/{run_id}/steps/{id}" in MODULE
