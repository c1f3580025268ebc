"""The Sheets client against the simulator."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast import providers
from holdfast.errors import ForbiddenError, InvalidError, NotFoundError, RetryLaterError
from holdfast.providers.google_sheets import ValueQuery, ValueRange
from holdfast.simulators.google import InjectedFault, SetSheet
from tests.providers.provider_fixture import ALICE, BOB, HastyClock, Setting

FIXTURES = Path(providers.__path__[0]) / "google_sheets" / "fixtures"
MAPPINGS = [["primary", "secondaries", "status"], [ALICE, "alice@fuga.jp"], [], [BOB, "b@fuga.jp", "active"]]


def _sheet(setting: Setting, *, readers: list[str] | None = None) -> None:
    command = SetSheet(spreadsheet_id="S1", sheet="User Mappings", rows=MAPPINGS, readers=readers)
    setting.google.run(command)


def test_values_are_read_ragged() -> None:
    read = msgspec.json.decode((FIXTURES / "values.json").read_bytes(), type=ValueRange)
    assert [len(row) for row in read.values] == [2, 0, 3]


async def test_rows_come_ragged_and_in_order(setting: Setting) -> None:
    _sheet(setting)
    read = await setting.sheets().values("S1", "User Mappings!A2:C")
    assert read.values == [[ALICE, "alice@fuga.jp"], [], [BOB, "b@fuga.jp", "active"]]


async def test_several_ranges_come_in_the_order_asked(setting: Setting) -> None:
    _sheet(setting)
    query = ValueQuery(major_dimension="COLUMNS")
    read = await setting.sheets().batch_values(
        "S1", ["User Mappings!A2:A", "'User Mappings'!C1"], query=query
    )
    assert [one.values for one in read.value_ranges] == [[[ALICE, "", BOB]], [["status"]]]


async def test_an_empty_range_has_no_rows(setting: Setting) -> None:
    _sheet(setting)
    assert (await setting.sheets().values("S1", "User Mappings!A10:C")).values == []


@pytest.mark.parametrize(
    "asked", ["Nowhere!A2:C", "User Mappings!A2:C!", "User Mappings!", "User Mappings!A5000"]
)
async def test_a_range_that_is_not_there_is_invalid(setting: Setting, asked: str) -> None:
    _sheet(setting)
    with pytest.raises(InvalidError, match="INVALID_ARGUMENT"):
        await setting.sheets().values("S1", asked)


async def test_a_spreadsheet_that_is_not_there_or_not_shared_is_told_apart(setting: Setting) -> None:
    _sheet(setting, readers=[BOB])
    with pytest.raises(NotFoundError):
        await setting.sheets().values("S2", "A1")
    with pytest.raises(ForbiddenError, match="PERMISSION_DENIED"):
        await setting.sheets().values("S1", "A1")


async def test_over_the_quota_it_tries_again_and_then_says_later(setting: Setting, hasty: HastyClock) -> None:
    _sheet(setting)
    setting.google.inject(InjectedFault(count=5, status=429, path="/v4"))
    with pytest.raises(RetryLaterError, match="RESOURCE_EXHAUSTED"):
        await setting.sheets().values("S1", "A1")
    assert len(hasty.slept) == 3
    assert (await setting.sheets().values("S1", "A1")).values == [["primary"]]
