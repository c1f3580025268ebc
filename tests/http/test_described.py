"""Generated requests at a real server, fitting and not: it answers as it describes itself.

`HOLDFAST_TEST_REQUESTS` says how many are sent at least; every operation gets some of each kind however few.
The long form is 5,000.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok

from holdfast.config import load_config
from holdfast.kit.access import ApiTokens
from holdfast.runtime import Runtime
from tests.http.processes import announce, holdfast_process
from tests.http.server_harness import SECRET, SERVICE

REQUESTS_MIN = int(os.environ.get("HOLDFAST_TEST_REQUESTS", "500"))
# How many of each kind an operation gets in one round; those with few parameters run out before.
EXAMPLES = 3
ROUNDS_MAX = 20
# These take their time for each request.
FEW = {"/work/drain": 3, "/api/v1/audit/verify": 5}
CHECKS: list[Any] = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """A serving process with every service there is and something to show; its address and a token."""
    announce(tmp_path)
    runtime = await Runtime.open(load_config({"home": tmp_path / "h"}, environ={}), services=[SERVICE])
    token = await ApiTokens(runtime.store).create("generated", role="admin")
    await runtime.close()
    limits = {"HOLDFAST_LIMITS": '{"caller_burst": 1000000, "address_burst": 1000000}'}
    async with holdfast_process(tmp_path, "serve", "--port", "0", environ=limits) as (_, address):
        async with aiohttp.ClientSession(address) as client:
            for number in range(5):
                headers = {"x-word": SECRET, "x-name": f"m{number}"}
                async with client.post("/echo-chamber/webhook", headers=headers) as answer:
                    assert answer.status == 202
        yield address, token


def test_it_answers_generated_requests_as_it_describes(server: tuple[str, str], record_property: Any) -> None:
    address, token = server
    asked = _Asking(address, token)
    described = asked.session.get(f"{address}/openapi.json", timeout=60).json()
    operations = [_sound(found) for found in schemathesis.openapi.from_dict(described).get_all_operations()]
    endless = [operation for operation in operations if _is_stream(described, operation)]
    wrong: list[str] = []
    for round, operation, mode in itertools.product(range(ROUNDS_MAX), operations, GenerationMode):
        if round and (wrong or asked.count.total() >= REQUESTS_MIN):
            break
        hopeless = mode is GenerationMode.NEGATIVE and _takes_nothing(described, operation)
        if operation not in endless and not hopeless:
            wrong += asked.ask_all(operation, mode, round=round)
    by_status = ", ".join(f"{status}: {count}" for status, count in sorted(asked.count.items()))
    record_property("said", f"generated requests: {asked.count.total()} ({by_status})")
    assert not wrong, "\n\n".join(wrong)
    assert asked.count.total() >= REQUESTS_MIN
    assert set(asked.count) >= {200, 400, 401, 404, 422}


class _Asking:
    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.session = requests.Session()
        self.session.headers["authorization"] = f"Bearer {token}"
        self.count: Counter[int] = Counter()

    def ask_all(self, operation: Any, mode: GenerationMode, *, round: int) -> list[str]:
        """Send every generated request of one kind to one operation; gives the first wrong answer."""

        @seed(round)
        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=FEW.get(operation.path, EXAMPLES), database=None, deadline=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        def ask(case: Any) -> None:
            answer = case.call(base_url=self.address, session=self.session, timeout=30)
            self.count[answer.status_code] += 1
            case.validate_response(answer, checks=CHECKS)

        try:
            ask()
        except FailureGroup as failure:
            return [f"{operation.label}, {mode.value}: {failure}"]
        return []


def _sound(found: Any) -> Any:
    assert isinstance(found, Ok), found
    return found.ok()


def _takes_nothing(described: dict[str, Any], operation: Any) -> bool:
    """Whether there is no way to ask it wrongly."""
    declared = described["paths"][operation.path][operation.method]
    return not declared["parameters"] and "requestBody" not in declared and declared.get("security") == []


def _is_stream(described: dict[str, Any], operation: Any) -> bool:
    """Whether the answer never ends."""
    answers = described["paths"][operation.path][operation.method]["responses"]
    return "text/event-stream" in answers.get("200", {}).get("content", {})
