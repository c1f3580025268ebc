"""The ids of documents and of events at Google."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.services.c4lendar.events import google_event_id, uid_of
from holdfast.services.c4lendar.models import EventMapping, GoogleConnection
from holdfast.store import put

NOW = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)


def test_an_account_is_unique_in_a_chat_and_an_event_in_an_account() -> None:
    account = GoogleConnection(
        chat_id="-100", google_sub="115", google_email="a@b.c", created_at=NOW, updated_at=NOW
    )
    assert put(account).key == "-100_115"
    row = EventMapping(
        chat_id="-100", bot_event_uid="01JBZQ8F7VKPNX3QZ9M8J5K2W7", google_sub="115", google_event_id="x",
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    assert put(row).key == "-100_01JBZQ8F7VKPNX3QZ9M8J5K2W7_115"


def test_a_uid_is_a_ulid_of_its_moment_and_the_same_for_the_same_act() -> None:
    uid = uid_of("run-1:decide", NOW)
    assert uid == uid_of("run-1:decide", NOW) != uid_of("run-2:decide", NOW)
    assert len(uid) == 26
    assert uid < uid_of("run-1:decide", NOW.replace(second=1))


def test_an_event_id_is_one_that_google_takes() -> None:
    id = google_event_id("-100", "01JBZQ8F7VKPNX3QZ9M8J5K2W7", google_sub="115")
    assert 5 <= len(id) <= 1024
    assert set(id) <= set("0123456789abcdefghijklmnopqrstuv")
