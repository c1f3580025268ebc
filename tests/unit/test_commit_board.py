"""The board through which processes on one SQLite file tell one another which collections changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Delivery
from holdfast.model.schema import Schema
from holdfast.store.catalog import Catalog
from holdfast.store.sqlite.commit_board import ROWS, CommitBoard

CATALOG = Catalog([InboxItem, Delivery])
TABLES: dict[Schema[Any], str] = {one: CATALOG.table(one) for one in CATALOG.schemas}
INBOX, DELIVERIES = CATALOG.schemas


def boards(path: Path, monkeypatch: pytest.MonkeyPatch, *, rows: tuple[int, int]) -> list[CommitBoard]:
    """Two processes' boards of one database, in these rows."""
    numbers = iter(rows)
    monkeypatch.setattr("holdfast.store.sqlite.commit_board.secrets.randbelow", lambda _: next(numbers))
    return [CommitBoard(str(path / "a.db"), TABLES) for _ in rows]


def test_others_commits_are_told_by_collection_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = boards(tmp_path, monkeypatch, rows=(0, ROWS - 1))
    assert other.changes() == set()
    one.post([INBOX])
    assert other.changes() == {INBOX}
    assert other.changes() == set()
    one.post([INBOX])
    one.post([DELIVERIES])
    assert other.changes() == {INBOX, DELIVERIES}
    assert one.changes() == set(), "a process knows its own commits"


def test_two_processes_in_one_row_hear_of_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = boards(tmp_path, monkeypatch, rows=(3, 3))
    one.post([INBOX])
    other.post([DELIVERIES])
    assert other.changes() == {INBOX}
    assert one.changes() == {DELIVERIES}
    one.post([INBOX])
    other.post([INBOX])
    assert one.changes() == {INBOX}


def test_a_board_is_for_its_owner_alone(tmp_path: Path) -> None:
    CommitBoard(str(tmp_path / "a.db"), TABLES).close()
    assert (tmp_path / "a.db-board").stat().st_mode & 0o077 == 0
