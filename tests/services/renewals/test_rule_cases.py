"""The rules through the whole service: CSV files in, a calculation over HTTP, each resident's reasons."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.services.renewals.domain.scoring import DELINQUENT, EXPIRY, MARKET, NO_OFFER
from holdfast.services.renewals.models import CalculationJob, Property
from holdfast.store import Query, patch
from holdfast.testing import ManualClock
from tests.services.renewals.calculation_fixtures import jobs_of, opened
from tests.services.renewals.rule_cases import CASES, REFERENCE_DAY, Case, Files, reference
from tests.services.renewals.server import Server, serving, settle_in

# Six months before the last of August is the last of February; New York is four hours behind UTC then.
AS_OF: Final = date(2026, 8, 31)
ZONE: Final = "America/New_York"


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose store holds the files, taken in by the command."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    before = structlog.get_config()
    files = Files()
    reference(files)
    files.property("edges", ZONE)
    for id, case in CASES.items():
        files.resident("edges", id, case)
    told = CliRunner().invoke(app, ["renewals", "import", str(files.write(tmp_path / "files")), "--json"])
    structlog.configure(**before)
    # The second price of the same unit and day is the one bad row.
    assert told.exit_code == 1, (told.output, told.exception)
    return tmp_path


async def test_every_rule_holds_from_the_files_to_the_answer(imported: Path) -> None:
    async with serving(imported) as server:
        told = await server.calculate("edges", AS_OF)
        page = await server.get("/properties/edges/renewal-risk?limit=500")
        found = {one["residentId"]: one for one in page["items"]}
        assert set(found) == set(CASES)
        wrong = {id: seen for id, case in CASES.items() if (seen := differs(found[id], case))}
        assert wrong == {}
        flagged = {id for id, case in CASES.items() if case.score >= 40}
        assert {one["residentId"] for one in told["flags"]} == flagged
        assert (told["totalResidents"], told["flaggedCount"]) == (len(CASES), len(flagged))


def differs(seen: Any, case: Case) -> Any:
    """What was found, where it is not what the case says."""
    values = seen["signals"]
    got = (seen["reasons"][EXPIRY]["points"], values[DELINQUENT], values[NO_OFFER], values[MARKET])
    assert seen["riskScore"] == sum(one["points"] for one in seen["reasons"].values())
    right = got == (case.expiry, case.delinquent, case.no_offer, case.market)
    return None if right and seen["riskScore"] == case.score else (got, seen["riskScore"])


async def test_the_reference_residents_score_as_written_from_the_files_to_the_flags(imported: Path) -> None:
    async with serving(imported) as server:
        told = await server.calculate("reference", REFERENCE_DAY)
        flags = [(one["residentId"], one["riskScore"], one["riskTier"]) for one in told["flags"]]
        assert flags == [("john", 77, "high"), ("jane", 67, "medium"), ("bob", 63, "medium")]
        assert told["riskTiers"] == {"high": 1, "medium": 2, "low": 1}
        by_john = told["flags"][0]
        assert (by_john["name"], by_john["unitId"], by_john["daysToExpiry"]) == ("john Case", "unit-john", 60)
        assert by_john["signals"] == {EXPIRY: 60, DELINQUENT: True, NO_OFFER: True, MARKET: False}
        page = await server.get("/properties/reference/renewal-risk?tier=low")
        assert [(one["residentId"], one["riskScore"]) for one in page["items"]] == [("alice", 8)]
        same = await server.post("/properties/reference/what-if")
        assert (same["riskTiers"], same["moved"]) == (told["riskTiers"], 0)


# Weights for expiry, delinquency, no offer, market rent; thresholds; who is in which tier then.
OTHER_RULES: Final = [
    ((100, 0, 0, 0), (70, 40), {"high": {"jane", "john", "bob"}, "medium": set(), "low": {"alice"}}),
    ((0, 100, 0, 0), (100, 1), {"high": {"john"}, "medium": set(), "low": {"jane", "bob", "alice"}}),
    ((0, 0, 0, 100), (50, 50), {"high": {"jane", "bob"}, "medium": set(), "low": {"john", "alice"}}),
    ((1, 33, 33, 33), (67, 66), {"high": {"jane", "john", "bob"}, "medium": set(), "low": {"alice"}}),
    ((40, 25, 20, 15), (67, 67), {"high": {"jane", "john"}, "medium": set(), "low": {"bob", "alice"}}),
    ((40, 25, 20, 15), (0, 0), {"high": {"jane", "john", "alice", "bob"}, "medium": set(), "low": set()}),
]


async def test_what_if_tells_what_a_run_by_those_rules_then_finds(imported: Path) -> None:
    async with serving(imported) as server:
        await server.calculate("reference", REFERENCE_DAY)
        for (expiry, delinquency, no_offer, market), (high, medium), tiers in OTHER_RULES:
            weights = {
                "expiry": expiry, "delinquency": delinquency, "noOffer": no_offer, "marketRent": market,
            }  # fmt: skip
            rules = {"weights": weights, "thresholds": {"high": high, "medium": medium}}
            before = await count_runs(server)
            would = await server.post("/properties/reference/what-if", rules)
            assert await count_runs(server) == before
            assert (await server.get("/properties/reference/rules"))["weights"]["expiry"] == 40
            status, _ = await server.ask("PUT", "/properties/reference/rules", json=rules)
            assert status == 200
            done = await server.calculate("reference", REFERENCE_DAY)
            assert would["riskTiers"] == done["riskTiers"] == {tier: len(who) for tier, who in tiers.items()}
            page = await server.get("/properties/reference/renewal-risk")
            for tier, who in tiers.items():
                assert {one["residentId"] for one in page["items"] if one["riskTier"] == tier} == who
            for one in page["items"]:
                assert one["riskScore"] == sum(signal["points"] for signal in one["reasons"].values())
            await server.ask("PUT", "/properties/reference/rules", json={})


async def test_what_if_leaves_the_propertys_own_rules_where_nothing_else_is_asked(imported: Path) -> None:
    async with serving(imported) as server:
        own = {
            "weights": {"expiry": 10, "delinquency": 80, "noOffer": 5, "marketRent": 5},
            "thresholds": {"high": 60, "medium": 10},
        }
        await server.ask("PUT", "/properties/reference/rules", json=own)
        done = await server.calculate("reference", REFERENCE_DAY)
        path = "/properties/reference/what-if"
        same = await server.post(path)
        assert (same["riskTiers"], same["moved"]) == (done["riskTiers"], 0)
        assert (await server.post(path, {"weights": own["weights"]}))["moved"] == 0
        assert (await server.post(path, {"thresholds": own["thresholds"]}))["moved"] == 0
        assert (await server.post(path, {"thresholds": {"high": 0, "medium": 0}}))["riskTiers"]["high"] == 4


async def count_runs(server: Server) -> int:
    query = Query(CalculationJob).where("property_id", "==", "reference").where("status", "==", "completed")
    return await server.store.count(query.order_by("-calculated_at"))


# A wall clock's day begins and ends at its own midnight, also where that day has 23 or 25 hours.
MIDNIGHTS: Final = [
    ("America/New_York", "2026-03-08T04:59:59Z", "2026-03-07"),
    ("America/New_York", "2026-03-08T05:00:00Z", "2026-03-08"),
    ("America/New_York", "2026-03-09T03:59:59Z", "2026-03-08"),
    ("America/New_York", "2026-03-09T04:00:00Z", "2026-03-09"),
    ("America/New_York", "2026-11-01T03:59:59Z", "2026-10-31"),
    ("America/New_York", "2026-11-02T04:59:59Z", "2026-11-01"),
    ("America/New_York", "2026-11-02T05:00:00Z", "2026-11-02"),
    ("America/Santiago", "2026-09-06T03:59:59Z", "2026-09-05"),
    ("America/Santiago", "2026-09-06T04:00:00Z", "2026-09-06"),
    ("Asia/Kathmandu", "2026-02-28T18:14:59Z", "2026-02-28"),
    ("Asia/Kathmandu", "2026-02-28T18:15:00Z", "2026-03-01"),
    ("Australia/Lord_Howe", "2024-02-28T13:00:00Z", "2024-02-29"),
    ("", "2026-12-31T23:59:59Z", "2026-12-31"),
]


async def test_a_run_is_of_the_day_on_the_propertys_wall(sqlite_url: str) -> None:
    clock = ManualClock()
    async with opened(sqlite_url, clock=clock) as store:
        home = store.tenant("-")
        for n, (zone, at, day) in enumerate(MIDNIGHTS):
            clock.set(datetime.fromisoformat(at))
            await settle_in(home, [], property_id=f"p-{n}")
            await home.commit(patch(Property, f"p-{n}", changes={"time_zone": zone}))
            job = await jobs_of(store).start(f"p-{n}")
            assert job.as_of_date.isoformat() == day, (zone, at)
