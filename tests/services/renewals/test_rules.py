"""A property's rules by a command: some changed, the others kept, on record, good for runs to come."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from tests.services.renewals.test_commands import P, outbox, run

pytestmark = pytest.mark.usefixtures("home")
FIRST = {"expiry": 40, "delinquency": 25, "noOffer": 20, "marketRent": 15}


def test_rules_are_changed_one_by_one_and_hold_for_the_next_run() -> None:
    run("sample", "--residents", "60", "--as-of", "2026-03-01")
    before = run("calculate", P, "--as-of", "2026-03-01")
    assert run("rules", "show", P)["weights"] == FIRST
    run("rules", "set", P, "--high", "1", "--medium", "1")
    made = run("rules", "set", P, "--expiry", "50", "--delinquency", "15", "--tolerance", "2.50")
    assert made["weights"] == FIRST | {"expiry": 50, "delinquency": 15}
    assert (made["thresholds"], made["toleranceCents"]) == ({"high": 1, "medium": 1}, 250)
    assert run("rules", "show", P) == made
    after = run("calculate", P, "--as-of", "2026-03-01")
    assert (after["high"], after["medium"]) == (60, 0)
    assert run("risk", P, "--run", before["id"], "--tier", "low")["items"], "kept tiers stay"
    back = run("rules", "reset", P)
    assert (back["weights"], back["thresholds"]) == (FIRST, {"high": 70, "medium": 40})
    text = CliRunner().invoke(app, ["renewals", "rules", "show", P]).stdout
    assert "40 lease end, 25 delinquency, 20 no offer, 15 market rent" in text
    assert "high from 70, medium from 40" in text


def test_a_calculation_that_sends_to_the_rms_says_of_how_many() -> None:
    run("sample", "--residents", "60", "--as-of", "2026-03-01")
    outbox("endpoints", "create", "https://rms.example/1", "--id", P)
    calculate = ["renewals", "calculate", P, "--as-of", "2026-03-01"]
    assert "RMS" not in CliRunner().invoke(app, calculate).stdout
    run("rules", "set", P, "--send", "flagged")
    said = CliRunner().invoke(app, calculate).stdout
    flagged = len(run("risk", P, "--tier", "high", "--tier", "medium", "--limit", "100")["items"])
    assert flagged
    assert said.endswith(f"; {flagged} are sent to the RMS\n")


def test_other_weights_are_tried_by_a_command_and_nothing_is_stored() -> None:
    run("sample", "--residents", "60", "--as-of", "2026-03-01")
    assert "was not calculated yet" in run("what-if", P, "--high", "60", code=1)
    job = run("calculate", P, "--as-of", "2026-03-01")
    told = run("what-if", P, "--high", "1", "--medium", "1")
    assert told["riskTiers"] == {"high": 60, "medium": 0, "low": 0}
    assert told["before"] == {name: job[name] for name in ("high", "medium", "low")}
    text = CliRunner().invoke(app, ["renewals", "what-if", P, "--high", "1", "--medium", "1"]).stdout
    assert f"{told['moved']} would change their tier" in text
    assert run("rules", "show", P)["thresholds"] == {"high": 70, "medium": 40}
    assert "add up to 110" in run("what-if", P, "--expiry", "50", code=1)
    assert "no property 'nowhere'" in run("what-if", "nowhere", code=1)


def test_a_change_of_rules_is_on_record_with_the_whole_of_them() -> None:
    run("sample", "--residents", "5", "--as-of", "2026-03-01")
    run("rules", "set", P, "--send", "high")
    told = CliRunner().invoke(app, ["audit", "export"])
    assert told.exit_code == 0, told.output
    lines = map(json.loads, told.stdout.splitlines())
    (entry,) = [one for one in lines if one["action"] == "renewals.rules_set"]
    assert (entry["subject"], entry["details"]["send"], entry["details"]["weights"]) == (P, "high", FIRST)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "nowhere"), 1, "no property 'nowhere'"),
        (("set", "nowhere", "--send", "high"), 1, "no property 'nowhere'"),
        (("reset", "nowhere"), 1, "no property 'nowhere'"),
        (("set", P), 2, "name what to change"),
        (("set", P, "--expiry", "50"), 1, "the weights add up to 110, not 100"),
        (("set", P, "--expiry", "101"), 2, "less than or equal to 100"),
        (("set", P, "--medium", "80"), 1, "medium begins at or below high"),
        (("set", P, "--tolerance", "much"), 1, "is no amount such as"),
        (("set", P, "--tolerance=-1"), 2, "a tolerance is from 0"),
        (("set", P, "--send", "all"), 2, "all"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_rules_that_do_not_fit_are_refused_in_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    run("sample", "--residents", "1", "--as-of", "2026-03-01")
    told = CliRunner().invoke(app, ["renewals", "rules", *words])
    message = told.output + told.stderr + str(told.exception)
    assert said in " ".join(message.replace("│", " ").split())
    assert told.exit_code == code
    assert run("rules", "show", P)["weights"] == FIRST
