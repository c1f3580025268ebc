"""What an operator does at the command line, on a store with something in it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config import load_config
from holdfast.kit.inbox import InboxItem
from holdfast.kit.metering import Meter
from holdfast.kit.outbox import Attempt, DeadLetter, Delivery, Endpoint
from holdfast.kit.schedules import Schedule
from holdfast.runtime import Runtime
from holdfast.store import create, patch

# Styles of ours, then those of terminals: a title, a colour, text from right to left.
_REASON = "[red]no[/red]\x1b]0;mine\x07\u009b31m\u202e"
_AT = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)


async def _fill(home: Path) -> None:
    """A delivery that was given up, a message that was parked, a schedule, and some usage."""
    runtime = await Runtime.open(load_config({"home": home}, environ={}), services=[])
    acme = runtime.store.tenant("acme")
    endpoint = Endpoint(id="rms", tenant_id="acme", url="https://rms.example", created_at=_AT)
    delivery = Delivery(
        id="e1~rms", tenant_id="acme", event_id="e1", endpoint_id="rms", event_type="paid", body=b"{}",
        occurred_at=_AT, created_at=_AT,
        attempts=[Attempt(_AT, 9, 1, 410, None, _REASON, "https://rms.example", "webhook-signature: v1,abc",
                          "server: rms")],
    )  # fmt: skip
    letter = DeadLetter(
        id="e1~rms", tenant_id="acme", event_id="e1", endpoint_id="rms", event_type="paid",
        reason=_REASON, died_at=_AT,
    )  # fmt: skip
    item = InboxItem.received(tenant_id="acme", source="github", message_id="m1", received_at=_AT)
    schedule = Schedule(
        tenant_id="acme", name="nightly", cron="0 2 * * *", zone="UTC", missed="once", slot_at=_AT,
        next_at=None,
    )  # fmt: skip
    await acme.commit(create(endpoint), create(delivery), create(letter), create(item), create(schedule))
    for status in ("sending", "dead"):
        await acme.commit(patch(Delivery, "e1~rms", changes={"status": status}))
    await acme.commit(patch(InboxItem, "github_m1", changes={"status": "parked", "finished_at": _AT}))
    await Meter(runtime.store, tenant_id="acme").record([("f1", {"runs": 3}, _AT)])
    await runtime.close()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    asyncio.run(_fill(tmp_path))
    yield
    structlog.configure(**before)


def _text(*words: str, code: int = 0) -> str:
    told = CliRunner().invoke(app, [*words, "--tenant", "acme"])
    assert told.exit_code == code, told.output
    return told.stdout


def _json(*words: str) -> Any:
    return json.loads(_text(*words, "--json"))


def _actions() -> list[str]:
    return [json.loads(line)["action"] for line in _text("audit", "export").splitlines()]


def test_a_dead_letter_is_listed_looked_at_and_put_out_again() -> None:
    (letter,) = _json("dlq", "list")["items"]
    assert (letter["id"], letter["reason"]) == ("e1~rms", _REASON)
    # What outsiders wrote is shown as it is.
    assert "[red]no[/red]" in _text("dlq", "list")
    assert _json("dlq", "replay", "--dry-run")["matched"] == 1
    assert _json("deliveries", "show", "e1~rms")["status"] == "dead"
    for option, found in (("--since", 1), ("--until", 0)):
        listed = _json("deliveries", "list", option, _AT.isoformat())
        assert len(listed["items"]) == found, option
    _text("deliveries", "list", "--since", "noon", code=2)
    assert _text("dlq", "replay") == "1 dead letter is sent again\n"
    assert _json("dlq", "list")["items"] == []
    assert [row["status"] for row in _json("deliveries", "list")["items"]] == ["pending"]
    _text("endpoints", "pause", "rms")
    assert "endpoint is paused" in _text("deliveries", "list")
    assert _json("deliveries", "replay", "e1~rms") == {"id": "e1~rms", "replayed": False}
    assert _actions() == ["dead_letters.replayed", "endpoint.paused"]


def test_a_waiting_delivery_is_cancelled_and_a_dead_letter_resolved() -> None:
    assert _text("dlq", "replay", "e1~rms") == "e1~rms is sent again\n"
    assert _json("deliveries", "cancel", "e1~rms")["status"] == "cancelled"
    _text("deliveries", "cancel", "e1~rms", code=1)
    shown = _json("dlq", "resolve", "e1~rms", "--note", "by telephone")
    assert (shown["resolved"], shown["resolution"]) == (True, "by telephone")
    _text("dlq", "replay", "e1~rms", "--dry-run", code=2)
    assert _actions() == [
        "dead_letter.replayed", "delivery.cancelled", "delivery.cancelled", "dead_letter.resolved",
    ]  # fmt: skip


def test_an_attempt_is_shown_with_its_headers_and_as_a_command() -> None:
    shown = _json("deliveries", "attempt", "e1~rms")
    assert (shown["number"], shown["response"]["status"], shown["request"]["method"]) == (1, 410, "POST")
    text = _text("deliveries", "attempt", "e1~rms", "--number", "1")
    assert "\nwebhook-signature: v1,abc\n\n{}\n\nHTTP 410\nserver: rms\n" in text
    assert "\x1b" not in text
    assert _text("deliveries", "attempt", "e1~rms", "--curl").startswith("curl --globoff")
    _text("deliveries", "attempt", "e1~rms", "--number", "2", code=1)


def test_an_endpoint_lives_from_its_creation_to_its_deletion() -> None:
    made = _json("endpoints", "create", "https://crm.example/hook", "--id", "crm", "--event-type", "lease.*")
    assert (made["id"], made["eventTypes"], made["secret"][:6]) == ("crm", ["lease.*"], "whsec_")
    updated = _json("endpoints", "update", "crm", "--rate", "2.5", "--concurrency", "3")
    assert (updated["url"], updated["ratePerS"], updated["concurrency"], updated["eventTypes"]) == (
        "https://crm.example/hook", 2.5, 3, ["lease.*"],
    )  # fmt: skip
    plain = _json("endpoints", "update", "crm", "--no-rate", "--every-event")
    assert (plain["ratePerS"], plain["eventTypes"]) == (None, [])
    for verb, state in (
        ("pause", "paused"),
        ("resume", "active"),
        ("disable", "disabled"),
        ("enable", "active"),
    ):
        assert _text("endpoints", verb, "crm", "--reason", "frost") == f"crm is {state}\n"
    assert "shown this once: whsec_" in _text("endpoints", "rotate", "crm")
    assert _json("endpoints", "test", "crm")["eventType"] == "holdfast.test"
    shown = _text("endpoints", "show", "crm")
    assert "secrets: 2" in shown
    assert "circuit: closed" in shown
    assert _text("endpoints", "replay-skipped", "crm", "--dry-run") == "0 deliveries would be sent\n"
    assert _json("endpoints", "replay-skipped", "crm")["changed"] == 0
    assert "whsec_" not in shown
    assert shown.count("frost") == 5
    assert [one["id"] for one in _json("endpoints", "list", "--status", "active")["items"]] == ["crm", "rms"]
    assert _text("endpoints", "delete", "crm") == "crm is deleted; deliveries cancelled: 1\n"
    _text("endpoints", "delete", "crm", code=1)
    _text("endpoints", "create", "ftp://crm.example", code=1)
    _text("endpoints", "create", "https://crm.example", "--rate", "nan", code=1)
    _text("endpoints", "list", "--status", "asleep", code=2)
    assert _actions()[:3] == ["endpoint.created", "endpoint.updated", "endpoint.updated"]


def test_an_empty_list_names_the_other_outboxes() -> None:
    for words in (["deliveries", "list"], ["dlq", "list"], ["endpoints", "list"]):
        shown = CliRunner().invoke(app, [*words, "--tenant", "nobody"]).stdout
        assert "in outbox holdfast; other outboxes (--outbox): renewals" in shown, words
    told = CliRunner().invoke(app, ["deliveries", "list", "--outbox", "cellar"])
    assert (told.exit_code, "no outbox 'cellar'" in str(told.exception)) == (1, True)


def test_what_outsiders_sent_can_not_command_the_terminal() -> None:
    for text in (_text("dlq", "list"), _text("dlq", "list", "--json")):
        assert "no[/red]" in text
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert _json("dlq", "list")["items"][0]["reason"] == _REASON


def test_a_delivery_that_is_not_there_is_an_error_in_one_line() -> None:
    told = CliRunner().invoke(app, ["deliveries", "show", "none"])
    assert told.exit_code == 1
    assert str(told.exception) == "no delivery 'none'"


def test_a_parked_message_is_worked_on_again_and_another_tenants_is_not() -> None:
    assert [row["id"] for row in _json("inbox", "list")["items"]] == ["github_m1"]
    other = CliRunner().invoke(app, ["inbox", "replay", "github_m1", "--tenant", "other", "--json"])
    assert json.loads(other.stdout)["replayed"] == []
    assert (other.exit_code, other.stderr) == (1, "not there: github_m1\n")
    some = CliRunner().invoke(app, ["inbox", "replay", "github_m1", "lost", "--tenant", "acme", "--dry-run"])
    assert (some.exit_code, some.stdout) == (1, "1 would be worked on again\n")
    assert some.stderr == "not there: lost\n"
    assert _json("inbox", "replay", "github_m1")["replayed"] == ["github_m1"]
    assert [row["id"] for row in _json("inbox", "list", "--status", "pending")["items"]] == ["github_m1"]
    assert _actions() == ["inbox.replayed"]


def test_a_list_of_the_platform_that_is_empty_names_the_option_for_a_tenant() -> None:
    for command in (["inbox", "list"], ["runs", "list"]):
        platform = CliRunner().invoke(app, [*command, "--tenant", "-"])
        assert (platform.exit_code, "--tenant ID" in platform.stdout) == (0, True)
    other = CliRunner().invoke(app, ["inbox", "list", "--tenant", "other"])
    assert other.stdout == "none is parked\n"


def test_a_job_is_run_and_switched() -> None:
    assert [row["name"] for row in _json("jobs", "list")["items"]] == ["nightly"]
    _text("jobs", "run", "nightly")
    _text("jobs", "off", "nightly")
    assert [row["enabled"] for row in _json("jobs", "list")["items"]] == [False]
    _text("jobs", "on", "nightly")
    assert [row["enabled"] for row in _json("jobs", "list")["items"]] == [True]
    assert _actions() == ["schedule.run", "schedule.switched_off", "schedule.switched_on"]
    assert _json("audit", "verify") == {"sound": True, "events": 3, "fault": None}


def test_usage_is_shown_and_adds_up() -> None:
    month = ("--month", "2026-11")
    used = [{"tenantId": "acme", "metric": "runs", "used": 3}]
    assert _json("usage", "show", *month)["items"] == used
    everybody = CliRunner().invoke(app, ["usage", "show", *month, "--json"])
    assert json.loads(everybody.stdout)["items"] == used
    assert _text("usage", "rebuild", *month) == "all sums agree\n"
    assert _text("usage", "allowances") == "nothing limited was taken\n"


def test_an_export_that_fails_leaves_the_file_of_an_earlier_one_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.jsonl"
    _text("inbox", "replay", "github_m1")
    _text("audit", "export", "--out", str(file))
    before = file.read_bytes()
    assert b"inbox.replayed" in before
    file.chmod(0o640)
    _text("audit", "export", "--out", str(file))
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (before, 0o640)
    monkeypatch.setenv("HOLDFAST_STORE", f"sqlite:///{tmp_path}")
    told = CliRunner().invoke(app, ["audit", "export", "--tenant", "acme", "--out", str(file)])
    assert told.exit_code == 1
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir() if "audit.jsonl" in one.name] == ["audit.jsonl"]


def test_an_export_goes_through_links_and_into_pipes_and_leaves_them_as_they_are(tmp_path: Path) -> None:
    file, link, pipe = tmp_path / "audit.jsonl", tmp_path / "latest", tmp_path / "pipe"
    _text("inbox", "replay", "github_m1")
    link.symlink_to(file)
    _text("audit", "export", "--out", str(link))
    assert link.is_symlink()
    assert b"inbox.replayed" in file.read_bytes()
    os.mkfifo(tmp_path / "fifo")
    pipe.symlink_to(tmp_path / "fifo")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _text("audit", "export", "--out", str(pipe))
        assert os.read(reader, 100_000) == file.read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_symlink()
    assert pipe.is_fifo()
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


def test_what_people_did_is_listed_and_found_by_what_who_and_whom() -> None:
    _text("inbox", "replay", "github_m1")
    _text("dlq", "replay")
    newest = _json("audit", "list", "--limit", "1")
    assert (newest["items"][0]["sequence"], bool(newest["cursor"])) == (2, True)
    rest = _json("audit", "list", "--cursor", newest["cursor"])["items"]
    assert [one["action"] for one in rest] == ["inbox.replayed"]
    (found,) = _json("audit", "list", "--action", "inbox.replayed")["items"]
    assert found["subject"] == "github_m1"
    assert [one["id"] for one in _json("audit", "list", "--subject", "github_m1")["items"]] == [found["id"]]
    assert len(_json("audit", "list", "--actor", found["actor"])["items"]) == 2
    assert "nothing is on record like this" in _text("audit", "list", "--actor", "nobody")
    assert "inbox.replayed" in _text("audit", "list")
    both = CliRunner().invoke(app, ["audit", "list", "--actor", "a", "--action", "b"])
    assert both.exit_code == 2
    assert "one of --action, --actor and --subject" in " ".join(both.output.replace("│", " ").split())
