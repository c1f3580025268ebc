"""The settings of a source: from the environment too, checked, and never quoted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.errors import ConfigError
from holdfast.kit.schedules.cron import slots_after
from holdfast.runtime import settings_of
from holdfast.services.renewals import service
from holdfast.services.renewals.ingest.settings import MINUTES, RenewalsSettings
from holdfast.testing import ManualClock


def test_settings_come_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_RENEWALS_SOURCE", "postgresql://u:hush@db/platform?schema=rop")
    monkeypatch.setenv("HOLDFAST_RENEWALS_REFRESH_MINUTES", "30")
    found = settings_of(service, load_config({"home": tmp_path}, environ={}))
    assert (found.source_tenant, found.refresh_minutes, found.cron) == ("-", 30, "*/30 * * * *")
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [("SOURCE", "postgresql://u:hu/sh@db/x"), ("SOURCE", "/some/folder"), ("REFRESH_MINUTES", "7")],
)
def test_settings_that_do_not_fit_are_refused_without_being_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"HOLDFAST_RENEWALS_{name}", value)
    with pytest.raises(ConfigError, match=r"\[service\.renewals\]") as raised:
        settings_of(service, load_config({"home": tmp_path}, environ={}))
    assert "sh@" not in raised.value.message


@pytest.mark.parametrize("minutes", MINUTES)
def test_a_schedule_comes_as_often_as_is_asked_for(minutes: int) -> None:
    start = ManualClock().now()
    slots = slots_after(RenewalsSettings(refresh_minutes=minutes).cron, "UTC", start)
    assert [next(slots) - start for _ in range(3)] == [timedelta(minutes=n * minutes) for n in (1, 2, 3)]
