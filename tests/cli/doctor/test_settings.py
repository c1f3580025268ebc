"""`holdfast doctor`: each fault of settings, folders and addresses is planted for real and found."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.vault import new_key
from holdfast.runtime import find_services
from tests.cli.doctor.examined import examine, fault, faults, install_service


def _contents(file: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(file)) as link:
        # The commit that tries whether anything can be written takes a version and names its process.
        return [line for line in link.iterdump() if not re.search(r"VALUES\('(version|writer)'", line)]


def test_a_sound_installation_has_no_faults_and_looking_changes_nothing(home: Path) -> None:
    before = _contents(home / ".holdfast" / "holdfast.db")
    assert faults(examine(home)) == []
    assert _contents(home / ".holdfast" / "holdfast.db") == before


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "holdfast serve" in fault(tmp_path, "store")
    assert not (tmp_path / ".holdfast").exists()


def test_a_setting_that_can_not_be_read(home: Path) -> None:
    assert "whole number" in fault(home, "settings", HOLDFAST_PORT="many")


def test_an_unknown_setting_with_the_one_that_was_meant(home: Path) -> None:
    (home / "holdfast.toml").write_text('publc_url = "https://hooks.example.com"\n')
    assert "did you mean public_url?" in fault(home, "settings")


def test_missing_keys_in_production(tmp_path: Path) -> None:
    assert "HOLDFAST_KEYS" in fault(tmp_path, "keys", HOLDFAST_ENV="production")


def test_a_short_key(home: Path) -> None:
    assert "short" in fault(home, "keys", HOLDFAST_KEYS="k1:c2hvcnQ=")


def test_a_key_that_is_not_random(home: Path) -> None:
    assert "not random" in fault(home, "keys", HOLDFAST_KEYS="k1:" + "QUFB" * 11)


def test_the_same_key_under_two_names(home: Path) -> None:
    key = new_key("k1")
    assert "same key" in fault(home, "keys", HOLDFAST_KEYS=f"{key},{key.replace('k1:', 'k2:')}")


@pytest.mark.parametrize(
    ("key", "why"), [("schlüssel-des-alten-systems", "plain ASCII"), ("hunter2", "weak: 7 characters")]
)
def test_a_legacy_key_that_is_no_key_or_a_weak_one(home: Path, key: str, why: str) -> None:
    assert why in fault(home, "legacy key", HOLDFAST_LEGACY_KEY=key)


def test_a_keys_file_that_others_can_read(home: Path) -> None:
    (home / ".holdfast" / "keys").chmod(0o644)
    assert "chmod 600" in fault(home, "keys file")


def test_a_settings_file_with_secrets_that_everybody_can_read(home: Path) -> None:
    (home / "holdfast.toml").write_text('[service.mail]\npassword = "hunter2"\n')
    (home / "holdfast.toml").chmod(0o644)
    assert "chmod 640" in fault(home, "settings file")
    assert "hunter2" not in json.dumps(examine(home))


def test_a_network_that_is_none(home: Path) -> None:
    assert "10.20.0.0/16" in fault(home, "allow", HOLDFAST_ALLOW="10.0.0.0/99")


def test_a_service_setting_that_does_not_fit(home: Path) -> None:
    install_service(home)
    (home / "holdfast.toml").write_text("[service.probe]\nretries = 'often'\n")
    assert "[service.probe]" in fault(home, "settings of probe", PYTHONPATH=str(home))


def test_settings_of_a_service_that_is_not_there(home: Path) -> None:
    (home / "holdfast.toml").write_text("[service.calender_sync]\nmappings = 'm.csv'\n")
    told = fault(home, "settings of calender_sync")
    assert "there is no service of that name" in told
    assert "calendar_sync" in told


def test_a_chosen_service_that_is_not_there(home: Path) -> None:
    assert "there are: c4lendar" in fault(home, "services", HOLDFAST_SERVICES="renewal")


def test_services_that_are_not_chosen_are_not_examined_though_their_settings_are_known(home: Path) -> None:
    (home / "holdfast.toml").write_text('services = ["renewals"]\n[service.gwi]\napp_id = 1\n')
    names = {finding["name"] for finding in examine(home)["findings"]}
    assert "settings of renewals" in names
    assert "settings of gwi" not in names


def test_a_home_that_can_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "HOLDFAST_HOME" in fault(tmp_path, "home", HOLDFAST_HOME=str(tmp_path / "file"))


def test_a_home_in_a_temporary_folder_in_production(home: Path) -> None:
    variables = {"TMPDIR": str(home), "HOLDFAST_ENV": "production", "HOLDFAST_KEYS": new_key("k1")}
    assert "temporary" in fault(home, "home", **variables)


def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    inside = ("unshare", "--user", "--map-root-user", "--mount")
    mount = f"mkdir -p {tmp_path}/small && mount -t tmpfs -o size=8m tmpfs {tmp_path}/small"
    if shutil.which("unshare") is None or subprocess.run([*inside, "sh", "-c", mount]).returncode:
        pytest.skip("THE DISK CHECK IS NOT TESTED: this machine lets nobody mount a small disk")
    prefix = (*inside, "sh", "-c", f'{mount} && exec "$@"', "sh")
    assert "make room" in fault(tmp_path, "disk", prefix=prefix, HOLDFAST_HOME=str(tmp_path / "small"))


def test_a_port_that_something_else_holds(home: Path) -> None:
    with _public(datetime.now(UTC), b"<h1>It works!</h1>") as url:
        assert "--port" in fault(home, "port", HOLDFAST_PORT=url.rpartition(":")[2])


@contextlib.contextmanager
def _public(date: datetime, body: bytes = b'{"status": "ok", "version": "0.1.0"}') -> Iterator[str]:
    """Something that answers as a server behind a proxy would, with its own idea of the time."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date.strftime("%a, %d %b %Y %H:%M:%S GMT")

        def log_message(self, format: str, *arguments: Any) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_public_address_that_answers_on_time_is_fine(home: Path) -> None:
    with _public(datetime.now(UTC)) as url:
        assert faults(examine(home, HOLDFAST_PUBLIC_URL=url)) == []


def test_a_clock_apart_from_the_public_address(home: Path) -> None:
    with _public(datetime.now(UTC) - timedelta(hours=1)) as url:
        assert "NTP" in fault(home, "clock skew", HOLDFAST_PUBLIC_URL=url)


def test_a_public_address_where_somebody_else_answers(home: Path) -> None:
    with _public(datetime.now(UTC), b"<h1>It works!</h1>") as url:
        assert "proxy" in fault(home, "public URL", HOLDFAST_PUBLIC_URL=url)


@pytest.mark.parametrize(
    ("url", "environment", "word"),
    [
        ("http://127.0.0.1:1", "development", "does not answer"),
        ("http://hooks.example.com", "development", "not encrypted"),
        ("http://127.0.0.1:1", "production", "this is production"),
        ("hooks.example.com", "development", "https://"),
    ],
)
def test_a_public_address_that_no_provider_can_use(home: Path, url: str, environment: str, word: str) -> None:
    told = examine(home, HOLDFAST_ENV=environment, HOLDFAST_PUBLIC_URL=url)
    found = [one for one in told["findings"] if not one["fine"] and one["name"] in ("public URL", "settings")]
    assert [one for one in found if word in one["message"] + one["remedy"]], told


def test_the_reference_names_every_finding(home: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "doctor.md").read_text(encoding="utf-8")
    addresses = [service.address for service in find_services()]
    with _public(datetime.now(UTC)) as url:
        for one in examine(home, HOLDFAST_PUBLIC_URL=url)["findings"]:
            names = {one["name"], *(one["name"].replace(a, "NAME") for a in addresses)}
            assert any(f"`{name}`" in page for name in names), one["name"]


def test_a_home_that_others_can_read(home: Path) -> None:
    (home / ".holdfast").chmod(0o755)
    assert f"chmod 700 {home}" in fault(home, "private files")
