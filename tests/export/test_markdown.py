"""The exported page tells people what the declarations say; every export is repeatable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.model import Document, schema_of
from holdfast.model.export import FORMATS, export
from tests.examples import gwi
from tests.examples.calendar_sync import WatchChannel

CLASSES: list[type[Document]] = [*gwi.COLLECTIONS, WatchChannel]
SCHEMAS = [schema_of(cls) for cls in CLASSES]
PAGE = export(SCHEMAS, "markdown")


def _section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _rows(title: str) -> dict[str, list[str]]:
    """The field table of a section, by field."""
    table = _section(title).partition("| Field |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[c.strip() for c in line.strip("|").replace("\\|", "¦").split("|")] for line in table]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_collection_has_a_table_with_a_row_per_stored_field() -> None:
    for schema in SCHEMAS:
        stored = [f.encode_name for f in schema.fields.values() if f.name not in schema.declared.path_only]
        assert list(_rows(schema.name)) == stored


def test_a_row_tells_type_need_index_and_meaning() -> None:
    rows = _rows("WatchChannel")
    assert rows["channelId"] == ["`string`", "yes", "id", "Ours: calendar-sync-{address}-{epoch ms}."]
    assert rows["resourceId"] == ["`string`", "yes", "no", "Google's; needed to stop the channel."]
    assert rows["status"] == ['`"active" ¦ "expired" ¦ "stopped"`', "no", "yes", ""]
    assert _rows("Run")["tenantId"][2] == "yes"
    assert _rows("Run")["error"][1] == "may be missing"


def test_states_are_a_diagram() -> None:
    diagram = _section("WatchChannel").partition("```mermaid\n")[2].partition("```")[0].splitlines()
    assert diagram[0] == "stateDiagram-v2"
    assert {line.strip() for line in diagram[1:]} == {
        "[*] --> active", "active --> expired", "active --> stopped", "expired --> active",
        "expired --> stopped", "stopped --> [*]",
    }  # fmt: skip


def test_relations_are_a_diagram() -> None:
    diagram = PAGE.partition("```mermaid\n")[2].partition("```")[0].splitlines()
    assert diagram[0] == "erDiagram"
    assert '    Tenant ||--o{ Repo : "holds"' in diagram
    assert '    Run ||--o{ RunStep : "holds"' in diagram
    assert '    Tenant ||--o{ Run : "owns"' in diagram
    assert not any("WatchChannel" in line or "Idempotency" in line for line in diagram)


def test_place_id_indexes_retention_and_access_are_told() -> None:
    channel = _section("WatchChannel")
    assert "Stored at `watchChannels/{channelId}`" in channel
    assert '`Index("status", "expiration")`' in channel
    assert "Immutable: `registeredAt`" in channel
    assert "Deleted 30 days after `last_updated_at`, where `status` is `expired`." in channel
    assert "| read | viewer |" in _section("Run")
    assert "Append-only." in _section("AuditEvent")
    assert "`{user_id}_{tenant_id}`" in _section("TenantMembership")


@pytest.mark.parametrize("format", FORMATS)
def test_exporting_again_in_another_process_gives_the_same_text(format: str) -> None:
    code = (
        "import sys; from tests.examples import gwi; from tests.examples.calendar_sync import WatchChannel; "
        "from holdfast.model import schema_of; from holdfast.model.export import export; "
        f"sys.stdout.write(export([schema_of(c) for c in [*gwi.COLLECTIONS, WatchChannel]], {format!r}))"
    )
    # Another hash seed: the order of sets must not show.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60,
        cwd=Path(__file__).parents[2], env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."},
    )  # fmt: skip
    assert done.stdout == export(SCHEMAS, format) == export(SCHEMAS, format)


def test_an_unknown_format_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="use firestore-indexes, firestore-rules, json-schema"):
        export(SCHEMAS, "excel")
