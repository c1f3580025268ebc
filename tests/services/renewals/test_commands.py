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
    """The JSON that `holdfast renewals …` prints; its text where it must fail."""
    return invoke("renewals", *words, code=code)


def outbox(command: str, verb: str, *words: str, code: int = 0) -> Any:
    """The same of a command of the platform on this service's outbox."""
    return invoke(command, verb, *words, "--outbox", "renewals", code=code)


def invoke(*words: str, code: int = 0) -> Any:
    as_json = [] if code else ["--json"]
    told = CliRunner().invoke(app, [*words, *as_json])
    assert told.exit_code == code, (words, told.output, told.exception)
    return f"{told.output}{told.stderr}{told.exception}" if code else json.loads(told.stdout)


def test_a_sample_is_calculated_looked_at_and_sent_to_the_rms(tmp_path: Path) -> None:
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
    made = outbox("endpoints", "create", "https://rms.example/1", "--id", P)
    assert made["secret"].startswith("whsec_")
    assert outbox("endpoints", "rotate", P)["secrets"] == 2
    assert outbox("endpoints", "pause", P, "--reason", "maintenance")["status"] == "paused"
    told = run("trigger", P, top["resident_id"])["items"]
    assert [one["status"] for one in told] == ["created"]
    assert [one["status"] for one in run("trigger", P, top["resident_id"])["items"]] == ["already queued"]
    one = outbox("deliveries", "show", told[0]["deliveryId"])
    assert (one["status"], one["attempts"]) == ("pending", [])
    assert json.loads(one["body"])["residentId"] == top["resident_id"]
    assert "not flagged in the latest run: nobody" in run("trigger", P, "nobody", code=1)
    assert "high or medium" in run("trigger", P, "--tier", "low", code=1)
    (waits,) = outbox("deliveries", "list")["items"]
    assert (waits["endpointId"], waits["status"]) == (P, "pending")
    assert outbox("dlq", "list")["items"] == []
    assert outbox("dlq", "replay", "--dry-run")["matched"] == 0
    lease = top["lease_id"]
    assert (
        run("outcome", top["resident_id"], lease, "left", "--on", "2099-01-01")["riskScore"]
        == top["risk_score"]
    )
    assert run("calibration", "--property", P)["left"] == 1
    assert [one["url"] for one in outbox("endpoints", "list")["items"]] == ["https://rms.example/1"]


def test_a_wrong_run_is_withdrawn_and_the_one_before_it_counts_again() -> None:
    run("sample", "--residents", "20", "--as-of", "2026-03-01")
    first, wrong = (run("calculate", P, "--as-of", day)["id"] for day in ("2026-03-01", "2026-02-01"))
    done = run("withdraw", P, wrong, "--reason", "wrong day")
    assert (done["jobId"], done["latest"]["jobId"], done["events"]) == (wrong, first, {})
    assert [one["jobId"] for one in run("runs", P)["items"]] == [first]
    assert "was already withdrawn by" in run("withdraw", P, wrong, code=1)
    plain = CliRunner().invoke(app, ["renewals", "withdraw", P, first])
    assert "The run as of 2026-03-01 is withdrawn; no run is left." in " ".join(plain.stdout.split())


def test_a_tier_of_a_great_many_is_sent_by_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    run("sample", "--residents", "60", "--as-of", "2026-03-01")
    job = run("calculate", P, "--as-of", "2026-03-01")
    flagged = job["high"] + job["medium"]
    outbox("endpoints", "create", "https://rms.example/1", "--id", P)
    monkeypatch.setattr("holdfast.services.renewals.operations.AT_ONCE_MAX", 1)
    left = run("trigger", P, "--tier", "flagged", "--no-wait")
    assert (left["status"], left["told"], left["residents"]) == ("pending", 0, flagged)
    told = run("trigger", P, "--tier", "flagged")
    assert (told["id"], told["status"], told["counts"]) == (left["id"], "completed", {"created": flagged})
    assert len(outbox("deliveries", "list", "--endpoint", P)["items"]) == min(flagged, 50)
    again = CliRunner().invoke(app, ["renewals", "trigger", P, "--tier", "flagged"])
    assert f"completed: {flagged} were in flight already." in " ".join(again.stdout.split())
    outbox("endpoints", "disable", P)
    assert "endpoints enable property-0001 --outbox renewals" in run("trigger", P, "--tier", "high", code=1)


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
    assert f"calculation {job['id']} failed: {job['error']}; correct that and calculate again" in told.stderr
    asyncio.run(move("UTC"))
    assert run("calculate", P, "--as-of", "2026-03-01")["status"] == "completed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("deliveries", "show", "nothing"), "no delivery 'nothing'"),
        (("dlq", "resolve", "nothing", "--note", " "), "a note has 1 to 500 characters"),
        (("dlq", "resolve", "nothing", "--note", "n" * 501), "a note has 1 to 500 characters"),
        (("dlq", "replay", "nothing"), "no dead letter 'nothing'"),
        (("endpoints", "pause", P, "--reason", "n" * 501), "a reason has at most 500 characters"),
        (("endpoints", "pause", "nowhere"), "no endpoint 'nowhere'"),
        (("endpoints", "rotate", "nowhere"), "no endpoint 'nowhere'"),
        (("endpoints", "create", "https://rms.example", "--id", "nowhere"), "no property 'nowhere'"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else None,
)
def test_what_is_wrong_with_the_outbox_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    assert said in " ".join(outbox(*words, code=1).split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("calculate", "nowhere"), 1, "no property 'nowhere'"),
        (("risk", "nowhere"), 1, "no property 'nowhere'"),
        (("runs", "nowhere"), 1, "no property 'nowhere'"),
        (("history", "nobody"), 1, "no resident 'nobody'"),
        (("trigger", "nowhere", "--tier", "high"), 1, "no property 'nowhere'"),
        (("calibration", "--property", "nowhere"), 1, "no property 'nowhere'"),
        (("outcome", "nobody", "l", "left", "--on", "2026-03-01"), 1, "no resident 'nobody'"),
        (("calculate", P, "--key", ""), 2, "not be empty"),
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
        (("risk", P, "--tier", "huge"), 2, "is none of"),
        (("trigger", P, "resident-1", "--tier", "high"), 2, "not both"),
        (("trigger", P), 2, "nobody is sent by default"),
        (("withdraw", P, "run-lost"), 1, "no run 'run-lost'"),
        (("import", "not-there"), 2, "does not exist"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_said_in_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    told = CliRunner().invoke(app, ["renewals", *words])
    message = told.output + told.stderr + str(told.exception)
    assert said in " ".join(message.replace("│", " ").split())
    assert "Traceback" not in message
    assert told.exit_code == code
