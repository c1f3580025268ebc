"""`holdfast doctor` on credentials: a provider's own refusal is found and told."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.cli.doctor.examined import examine, fault, faults, install_service


def test_credentials_that_a_provider_refuses(home: Path) -> None:
    install_service(home)
    assert "refuses the token" in fault(home, "probe", PYTHONPATH=str(home))
    assert faults(examine(home, PYTHONPATH=str(home), HOLDFAST_PROBE_TOKEN="right")) == []


@contextlib.contextmanager
def _simulated_google(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "holdfast", "simulators", "run", "google", "--port", "0"]
    with subprocess.Popen(command, cwd=home, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[4]
        finally:
            process.kill()


def _cause(url: str, command: str, **body: Any) -> Any:
    request = Request(f"{url}/_control/{command}", data=json.dumps(body).encode())
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_credentials_that_google_refuses(home: Path) -> None:
    with _simulated_google(home) as url:
        key = _cause(url, "service-accounts", name="holdfast")
        (home / "key.json").write_text(json.dumps(key))
        (home / "map.csv").write_text("alice@hoge.jp,alice@fuga.jp,active\n")
        settings: Any = {
            "HOLDFAST_CALENDAR_SYNC_SERVICE_ACCOUNT": str(home / "key.json"),
            "HOLDFAST_CALENDAR_SYNC_MAPPINGS": str(home / "map.csv"),
        }
        assert "calendar-sync credentials" not in faults(examine(home, **settings))
        assert "public_url" in fault(home, "calendar-sync address", **settings)
        reached: Any = settings | {"HOLDFAST_CALENDAR_SYNC_WEBHOOK_URL": "https://hooks.example.com/webhook"}
        assert "calendar-sync address" not in faults(examine(home, **reached))
        _cause(url, "revoke", email=key["client_email"])
        assert "service_account" in fault(home, "calendar-sync credentials", **settings)
        # And nobody works with them.
        assert "mappings" in fault(home, "health of calendar-sync", **settings)
