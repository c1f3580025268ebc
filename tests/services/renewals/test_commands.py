"""`holdfast renewals …`: from files to a dead letter, with exit codes and JSON for programs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.services.renewals.models import Property
from holdfast.store import patch
from tests.services.renewals.calculation_fixtures import opened
from tests.services.renewals.test_import import good_files, write

pytestmark = pytest.mark.usefixtures("home")
P = "property-0001"


def run(*words: str, code: int = 0) -> Any:
    """The JSON a command prints; its text where it must fail."""
    as_json = [] if code else ["--json"]
    told = CliRunner().invoke(app, ["renewals", *words, *as_json])
    assert told.exit_code == code, (words, told.output, told.exception)
    return f"{told.output}{told.stderr}{told.exception}" if code else json.loads(told.stdout)


def test_a_sample_is_calculated_looked_at_and_told_to_the_rms(tmp_path: Path) -> None:
    sampled = run("sample", "--residents", "60", "--per-property", "40", "--as-of", "2026-03-01")
    assert sampled == {"residents": 60, "properties": 2}
    assert run("sample", "--residents", "60", "--per-property", "40", "--as-of", "2026-03-01") == sampled
    job = run("calculate", P, "--as-of", "2026-03-01")
    assert (job["status"], job["scored"], job["high"] + job["medium"] + job["low"]) == ("completed", 40, 40)
    shown = {one["propertyId"]: one["latest"] for one in run("portfolio")["items"]}
    assert (shown[P]["totalResidents"], shown["property-0002"]) == (40, None)
    first = run("risk", P, "--limit", "1")
    (top,) = first["items"]
    assert first["cursor"]
    assert top["risk_score"] == sum(one["points"] for one in top["signals"].values())
    (only,) = run("runs", P)["items"]
    assert (only["jobId"], only["totalResidents"]) == (job["id"], 40)
    for chosen in (("--run", job["id"]), ("--as-of", "2026-03-02")):
        assert run("risk", P, "--limit", "1", *chosen)["items"] == [top]
    assert "no finished run" in run("risk", P, "--as-of", "2020-01-01", code=1)
    assert "choose one of its runs" in run("risk", P, "--run", "run-lost", code=1)
    assert [one["id"] for one in run("history", top["resident_id"])["items"]] == [top["id"]]
    assert "no RMS endpoint" in run("trigger", P, top["resident_id"], code=1)
    made = run("endpoints", "set", P, "https://rms.example/1")
    assert made["secret"].startswith("whsec_")
    assert run("endpoints", "rotate", P)["secrets"] == 2
    assert run("endpoints", "act", P, "pause", "--reason", "maintenance")["status"] == "paused"
    told = run("trigger", P, top["resident_id"])["items"]
    assert [one["status"] for one in told] == ["created"]
    assert [one["status"] for one in run("trigger", P, top["resident_id"])["items"]] == ["already queued"]
    one = run("delivery", told[0]["deliveryId"])
    assert (one["status"], one["attempts"]) == ("pending", [])
    assert json.loads(one["payload"])["residentId"] == top["resident_id"]
    text = CliRunner().invoke(app, ["renewals", "delivery", told[0]["deliveryId"]]).stdout
    assert one["payload"] in text
    assert "not tried yet" in text
    assert "not flagged in the latest run: nobody" in run("trigger", P, "nobody", code=1)
    assert "high or medium" in run("trigger", P, "--tier", "low", code=1)
    assert "a rate is" in run("endpoints", "set", P, "https://rms.example/1", "--rate", "inf", code=1)
    assert [one["status"] for one in run("deliveries", P)["items"]] == ["pending"]
    (waits,) = run("deliveries", "--waiting", "due")["items"]
    assert (waits["propertyId"], waits["residentId"]) == (P, top["resident_id"])
    assert run("deliveries", "--event", waits["eventId"])["items"] == run("deliveries")["items"] == [waits]
    assert run("deliveries", "--waiting", "later")["items"] == []
    assert run("dlq", "list")["items"] == []
    assert run("dlq", "replay", "--dry-run")["matched"] == 0
    lease = top["lease_id"]
    assert (
        run("outcome", top["resident_id"], lease, "left", "--on", "2099-01-01")["riskScore"]
        == top["risk_score"]
    )
    assert run("calibration", "--property", P)["left"] == 1
    assert [one["url"] for one in run("endpoints", "list")["items"]] == ["https://rms.example/1"]


def test_a_tier_of_a_great_many_is_told_of_by_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    run("sample", "--residents", "60", "--as-of", "2026-03-01")
    job = run("calculate", P, "--as-of", "2026-03-01")
    flagged = job["high"] + job["medium"]
    run("endpoints", "set", P, "https://rms.example/1")
    monkeypatch.setattr("holdfast.services.renewals.queries.portfolio.AT_ONCE_MAX", 1)
    left = run("trigger", P, "--no-wait")
    assert (left["status"], left["told"], left["residents"]) == ("pending", 0, flagged)
    told = run("trigger", P)
    assert (told["id"], told["status"], told["counts"]) == (left["id"], "completed", {"created": flagged})
    assert len(run("deliveries", P)["items"]) == min(flagged, 50)
    again = CliRunner().invoke(app, ["renewals", "trigger", P])
    assert f"completed: {flagged} were on their way already." in " ".join(again.stdout.split())
    run("endpoints", "act", P, "disable")
    assert "endpoints act property-0001 enable" in run("trigger", P, code=1)


def test_files_are_taken_in_and_bad_rows_end_in_exit_code_one(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    good_files(folder, 20)
    tables = {one["table"]: one for one in run("import", str(folder))["tables"]}
    assert (tables["leases"]["created"], tables["leases"]["bad"]) == (20, [])
    write(folder, "properties", "id name", [["p-1", "Mill House"], ["", "Nameless"], ["p-9", ""]])
    said = run("import", str(folder), code=1)
    assert "properties.csv row 3: id:" in said
    assert "properties.csv row 4: name:" in said
    assert (folder / "bad" / "properties.csv").is_file()


def test_a_calculation_that_fails_ends_with_1_and_the_reason(tmp_path: Path) -> None:
    run("sample", "--residents", "5", "--as-of", "2026-03-01")

    async def move(zone: str) -> None:
        async with opened(f"sqlite:///{tmp_path}/holdfast.db") as store:
            await store.tenant("-").commit(patch(Property, P, changes={"time_zone": zone}))

    asyncio.run(move("Nowhere/Land"))
    told = CliRunner().invoke(app, ["renewals", "calculate", P, "--as-of", "2026-03-01", "--json"])
    assert told.exit_code == 1
    job = json.loads(told.stdout)
    assert (job["status"], "Nowhere/Land" in job["error"]) == ("failed", True)
    assert f"calculation {job['id']} failed: {job['error']}; mend that and calculate again" in told.stderr
    asyncio.run(move("UTC"))
    assert run("calculate", P, "--as-of", "2026-03-01")["status"] == "completed"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("calculate", "nowhere"), 1, "no property 'nowhere'"),
        (("risk", "nowhere"), 1, "no property 'nowhere'"),
        (("runs", "nowhere"), 1, "no property 'nowhere'"),
        (("history", "nobody"), 1, "no resident 'nobody'"),
        (("delivery", "nothing"), 1, "no delivery 'nothing'"),
        (("dlq", "resolve", "nothing", "--note", " "), 1, "a note has 1 to 500 characters"),
        (("dlq", "resolve", "nothing", "--note", "n" * 501), 1, "a note has 1 to 500 characters"),
        (("endpoints", "act", P, "pause", "--reason", "n" * 501), 1, "a reason has at most 500 characters"),
        (("dlq", "replay", "nothing"), 1, "no dead letter 'nothing'"),
        (("dlq", "list", "--property", "nowhere"), 1, "no property 'nowhere'"),
        (("dlq", "replay", "--property", "nowhere"), 1, "no property 'nowhere'"),
        (("dlq", "replay", "nothing", "--property", P), 2, "not both"),
        (("endpoints", "act", "nowhere", "pause"), 1, "no RMS endpoint of property 'nowhere'"),
        (("endpoints", "rotate", "nowhere"), 1, "no RMS endpoint of property 'nowhere'"),
        (("deliveries", "nowhere"), 1, "no property 'nowhere'"),
        (("trigger", "nowhere"), 1, "no property 'nowhere'"),
        (("calibration", "--property", "nowhere"), 1, "no property 'nowhere'"),
        (("outcome", "nobody", "l", "left", "--on", "2026-03-01"), 1, "no resident 'nobody'"),
        (("calculate", P, "--key", ""), 2, "not be empty"),
        (("endpoints", "set", "nowhere", "https://rms.example"), 1, "no property"),
        (("calculate", P, "--as-of", "soon"), 2, "no day such as"),
        (
            ("sample", "--residents", "3", "--as-of", "9999-12-31"),
            1,
            "no day between 1900-01-01 and 2999-12-31",
        ),
        (
            ("sample", "--residents", "3", "--as-of", "0001-01-01"),
            1,
            "no day between 1900-01-01 and 2999-12-31",
        ),
        (("deliveries", P, "--waiting", "due"), 2, "leave PROPERTY out"),
        (("deliveries", "--status", "dlq"), 2, "say which"),
        (("deliveries", "--waiting", "due", "--event", "evt-1"), 2, "not both"),
        (("risk", P, "--tier", "huge"), 2, "is none of"),
        (("trigger", P, "resident-1", "--tier", "high"), 2, "not both"),
        (("import", "not-there"), 2, "does not exist"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_told_in_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    told = CliRunner().invoke(app, ["renewals", *words])
    message = told.output + told.stderr + str(told.exception)
    assert said in " ".join(message.replace("│", " ").split())
    assert "Traceback" not in message
    assert told.exit_code == code
