"""Mappings: rows read and checked, bad ones told by number, the last good map kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, HoldfastError, InvalidError
from holdfast.services.calendar_sync.domain.mappings import MappingRow, digest, merge_mappings, parse
from holdfast.services.calendar_sync.models import BadMappingRow, UserMapping
from holdfast.services.calendar_sync.sync.sources import CsvSource, TomlSource, file_source, rows_of_cells
from holdfast.simulators.google import InjectedFault, RevokeAccess, SetSheet
from holdfast.testing import ManualClock
from tests.services.calendar_sync.harness import (
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    CAROL,
    CAROL2,
    Harness,
    calendar_harness,
)


def _row(number: int, primary: str, *secondaries: str, status: str = "") -> MappingRow:
    return MappingRow(number, primary, secondaries, status)


def test_a_blank_status_is_active_and_an_inactive_row_maps_nobody() -> None:
    rows = [
        _row(2, ALICE, ALICE2),
        _row(3, BOB, BOB2, status="Inactive"),
        _row(4, CAROL, CAROL2, status="ACTIVE"),
    ]
    assert parse(rows).entries == {ALICE: (ALICE2,), CAROL: (CAROL2,)}


def test_a_later_row_wins() -> None:
    assert parse([_row(2, ALICE, ALICE2), _row(3, ALICE.upper(), BOB2)]).entries == {ALICE: (BOB2,)}
    assert parse([_row(2, ALICE, ALICE2), _row(3, ALICE, ALICE2, status="inactive")]).entries == {}


def test_addresses_are_compared_in_lower_case_and_named_once() -> None:
    rows = [_row(2, " Alice@Hoge.JP ", "ALICE@fuga.jp", " alice@fuga.jp", "alice@hoge.jp", "")]
    assert parse(rows).entries == {ALICE: (ALICE2,)}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (_row(7, "alice", ALICE2), "'alice' is no e-mail address"),
        (_row(7, "", ALICE2), "'' is no e-mail address"),
        (_row(7, "a@b", ALICE2), "'a@b' is no e-mail address"),
        (_row(7, "a b@hoge.jp", ALICE2), "'a b@hoge.jp' is no e-mail address"),
        (_row(7, ALICE, "nobody at all"), "'nobody at all' is no e-mail address"),
        (_row(7, ALICE, "alice@fuga..jp"), "'alice@fuga..jp' is no e-mail address"),
        (_row(7, ALICE, "x" * 250 + "@fuga.jp"), f"{'x' * 60!r} is no e-mail address"),
        (_row(7, ALICE), "no secondary address"),
        (_row(7, ALICE, ALICE), "no secondary address"),
        (_row(7, ALICE, ALICE2, status="off"), "the status 'off' is neither active nor inactive"),
        (
            _row(7, ALICE, *[f"a{n}@fuga.jp" for n in range(21)]),
            "21 secondary addresses; at most 20 are taken",
        ),
    ],
)
def test_a_row_that_cant_be_used_is_told_by_its_number(row: MappingRow, reason: str) -> None:
    parsed = parse([_row(2, BOB, BOB2), row])
    assert parsed.entries == {BOB: (BOB2,)}
    assert parsed.bad == (BadMappingRow(7, reason),)


def test_whoever_has_a_bad_row_keeps_what_they_had() -> None:
    before = {ALICE: (ALICE2,), BOB: (BOB2,)}
    slip = parse([_row(2, ALICE, "alice(at)fuga.jp"), _row(3, BOB, CAROL2)])
    assert merge_mappings(slip, before) == {ALICE: (ALICE2,), BOB: (CAROL2,)}
    assert merge_mappings(parse([_row(3, BOB, BOB2)]), before) == {BOB: (BOB2,)}


def test_the_same_map_has_the_same_digest_whatever_the_order() -> None:
    one, two = {ALICE: (ALICE2,), BOB: (BOB2,)}, {BOB: (BOB2,), ALICE: (ALICE2,)}
    assert digest(one) == digest(two) != digest({ALICE: (ALICE2,)})


def test_empty_lines_are_passed_over_and_counted() -> None:
    rows = rows_of_cells([["a", "b,c;d", "x"], [], ["", "", ""], ["e"], [1, None, True]], start=2)
    assert [(row.number, row.primary, list(row.secondaries), row.status) for row in rows] == [
        (2, "a", ["b", "c", "d"], "x"), (5, "e", [""], ""), (6, "1", [""], "True"),
    ]  # fmt: skip


async def test_a_csv_file_with_or_without_headings(tmp_path: Path) -> None:
    file = tmp_path / "m.csv"
    file.write_text(f'Primary,Secondaries\n{ALICE},"{ALICE2}, {BOB2}",active\n', encoding="utf-8-sig")
    assert [(r.number, r.primary, r.status) for r in await CsvSource(file).rows()] == [(2, ALICE, "active")]
    file.write_text(f"{ALICE},{ALICE2}\n{BOB},{BOB2}\n")
    assert [row.number for row in await CsvSource(file).rows()] == [1, 2]


async def test_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text(
        f'[[mapping]]\nprimary = "{ALICE}"\nsecondaries = ["{ALICE2}"]\n\n[[mapping]]\nprimary = 7\n'
    )
    parsed = parse(await TomlSource(file).rows())
    assert parsed.entries == {ALICE: (ALICE2,)}
    assert parsed.bad == (BadMappingRow(2, "'7' is no e-mail address"),)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("m.csv", b'a,"b\n', "is no CSV"),
        ("m.csv", b"\xff\xfe", "is not UTF-8"),
        ("m.toml", b"[[mapping]", "is no TOML"),
        ("m.toml", b'mapping = "all"', r"write each mapping under \[\[mapping\]\]"),
    ],
)
async def test_a_file_that_is_none_says_so(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidError, match=reason):
        await file_source(tmp_path / name).rows()


async def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="can't be read: No such file"):
        await file_source(tmp_path / "m.csv").rows()


def test_other_kinds_of_files_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a \.csv or \.toml file or from sheet:ID, not from 'm.xlsx'"):
        file_source(Path("m.xlsx"))


# -- reloading ------------------------------------------------------------------------------------


async def _stored(harness: Harness) -> dict[str, list[str]]:
    from holdfast.store import Query

    docs = (await harness.runtime.store.query(Query(UserMapping))).docs
    return {doc.primary_email: doc.secondary_emails for doc in docs}


async def test_a_reload_says_what_changed_and_channels_follow(harness: Harness) -> None:
    await harness.begin()
    harness.map({BOB: [BOB2, "bob@piyo.jp"], CAROL: [CAROL2]})
    reloaded = await harness.engine.refresh()
    assert (reloaded.mappings, reloaded.added, reloaded.changed, reloaded.removed) == (2, 1, 1, 1)
    assert await _stored(harness) == {BOB: [BOB2, "bob@piyo.jp"], CAROL: [CAROL2]}
    await harness.work()
    assert harness.live() == [BOB, CAROL]
    again = await harness.engine.refresh()
    assert (again.added, again.changed, again.removed) == (0, 0, 0)


async def test_a_changed_mapping_reaches_events_that_are_there(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    event_id = harness.create(ALICE, ALICE)
    await harness.work()
    harness.map({ALICE: ["alice@piyo.jp"], BOB: [BOB2]})
    await harness.engine.refresh()
    await harness.work()
    assert harness.attendees(ALICE, event_id) == [ALICE, "alice@piyo.jp"]


async def test_a_failed_reload_keeps_the_last_good_map_and_shows_it(
    harness: Harness, clock: ManualClock
) -> None:
    await harness.begin()
    harness.mappings.unlink()
    with pytest.raises(HoldfastError, match="can't be read"):
        await harness.engine.refresh()
    await harness.work()
    assert harness.live() == [ALICE, BOB]
    report = await harness.engine.status()
    assert report.status() == "degraded"
    assert (report.response().mappings.count, report.response().mappings.failed_reloads) == (2, 1)
    await harness.restart()
    assert harness.engine.mappings.entries == {ALICE: (ALICE2,), BOB: (BOB2,)}
    harness.map({ALICE: [ALICE2], BOB: [BOB2]})
    await harness.engine.refresh()
    assert (await harness.engine.status()).status() == "ok"


async def test_an_emptied_source_stops_nobody(quick_harness: Harness) -> None:
    await quick_harness.begin()
    quick_harness.map({})
    with pytest.raises(InvalidError, match="would stop every channel"):
        await quick_harness.engine.refresh()
    await quick_harness.work()
    assert quick_harness.live() == [ALICE, BOB]


async def test_rows_that_are_all_inactive_end_every_channel_on_purpose(quick_harness: Harness) -> None:
    await quick_harness.begin()
    quick_harness.mappings.write_text(f"{ALICE},{ALICE2},inactive\n{BOB},,inactive\n")
    reloaded = await quick_harness.engine.refresh()
    assert (reloaded.mappings, reloaded.removed, reloaded.bad_rows) == (0, 2, ())
    await quick_harness.work()
    assert quick_harness.live() == []
    assert (await quick_harness.engine.status()).status() == "ok"


async def test_an_address_that_no_engine_can_keep_is_a_bad_row_and_stops_no_reload(
    quick_harness: Harness,
) -> None:
    await quick_harness.begin()
    quick_harness.map({"ann/eve@hoge.jp": [ALICE2], CAROL: [CAROL2]})
    reloaded = await quick_harness.engine.refresh()
    assert [bad.row for bad in reloaded.bad_rows] == [2]
    assert quick_harness.engine.mappings.entries == {CAROL: (CAROL2,)}


async def test_bad_rows_are_shown_and_cost_nobody_their_channel(quick_harness: Harness) -> None:
    await quick_harness.begin()
    quick_harness.map({ALICE: ["oops"], BOB: [BOB2]})
    reloaded = await quick_harness.engine.refresh()
    assert reloaded.bad_rows == (BadMappingRow(2, "'oops' is no e-mail address"),)
    await quick_harness.work()
    assert quick_harness.live() == [ALICE, BOB]
    health = (await quick_harness.engine.status()).health()
    assert health.status == "degraded"
    assert health.reasons == ("mappings have rows that can't be used: 2",)


async def test_another_process_works_with_the_new_map(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    other = harness.runtime.__class__(
        harness.config, harness.runtime.store, harness.runtime.services, vault=harness.runtime.vault
    )
    theirs: Any = other.parts["calendar_sync"].operations.engine
    assert await theirs.mappings.current() == {ALICE: (ALICE2,), BOB: (BOB2,)}
    harness.map({CAROL: [CAROL2]})
    await harness.engine.refresh()
    assert await theirs.mappings.current() == {CAROL: (CAROL2,)}


async def test_mappings_come_from_a_sheet(one_url: str, clock: ManualClock, tmp_path: Path) -> None:
    settings = {"mappings": "sheet:1AbC"}
    async with calendar_harness(one_url, clock, tmp_path, settings=settings) as harness:
        rows = [
            ["Primary", "Secondary", "Status"],
            [ALICE, f"{ALICE2}, alice@piyo.jp"],
            [BOB, BOB2, "inactive"],
        ]
        harness.google.run(
            SetSheet(spreadsheet_id="1AbC", sheet="User Mappings", rows=[*rows, ["x"], [CAROL, CAROL2]])
        )
        reloaded = await harness.engine.refresh()
        assert harness.engine.mappings.entries == {ALICE: (ALICE2, "alice@piyo.jp"), CAROL: (CAROL2,)}
        assert reloaded.bad_rows == (BadMappingRow(4, "'x' is no e-mail address"),)
        harness.google.inject(InjectedFault(count=1, status=403, reason="PERMISSION_DENIED"))
        with pytest.raises(HoldfastError):
            await harness.engine.refresh()
        assert harness.engine.mappings.loaded
        harness.google.run(RevokeAccess(email=CAROL))
        await harness.engine.refresh()
