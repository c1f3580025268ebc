"""What log lines show, and what they must not."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from holdfast.logs import log_to


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _configured_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def _fail() -> None:
    token = "hf_" + "secret" * 2
    raise RuntimeError(f"broken after {len(token)} characters")


@pytest.mark.parametrize("file", [io.StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_a_traceback_shows_where_but_never_the_values_there(file: io.StringIO) -> None:
    log_to(file, logging.INFO)
    try:
        _fail()
    except RuntimeError as fault:
        structlog.get_logger("test").error("failed", exc_info=fault)
    told = file.getvalue()
    assert "_fail" in told
    assert "broken after 15 characters" in told
    assert "secretsecret" not in told


def test_in_a_pipe_each_line_is_json_and_quiet_levels_stay_out() -> None:
    file = io.StringIO()
    log_to(file, logging.WARNING)
    log = structlog.get_logger("test")
    log.info("not this")
    log.warning("this", item="m1")
    (line,) = file.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["item"]) == ("this", "warning", "m1")
