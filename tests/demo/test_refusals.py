"""Where `holdfast demo` does not begin: a taken port, a folder or a store that is somebody's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.demo.service import SceneRunner, demo_service
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import ConfigError
from holdfast.kit.access import User
from holdfast.kit.outbox import Endpoint
from holdfast.runtime import Runtime, find_services
from holdfast.services.calendar_sync.models import UserMapping
from holdfast.store import create
from tests.demo.demo_process import admin_token, holdfast


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = holdfast(tmp_path, "demo", PORT=str(port))
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert f"port {port} on 127.0.0.1 is taken" in refused.stderr


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    refused = holdfast(tmp_path, "demo", "--port", "0")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)


def test_a_store_in_use_and_production_are_refused(tmp_path: Path) -> None:
    admin_token(tmp_path)
    refused = holdfast(tmp_path, "demo", "--port", "0")
    assert refused.returncode == 1
    assert "not a demo's" in refused.stderr
    refused = holdfast(tmp_path, "demo", "--port", "0", HOLDFAST_ENV="production")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)


async def _open(home: Path) -> Runtime:
    """What a demo opens, without its outside worlds."""
    troupe = SceneRunner({}, SimulatorSet(clock=SystemClock(), public_url="http://127.0.0.1:1"))
    config = load_config({"home": home}, environ={})
    return await Runtime.open(config, services=[demo_service(troupe), *find_services()])


@pytest.mark.parametrize("kept", ["people", "a service's documents", "endpoints"])
async def test_whatever_somebody_keeps_a_demo_leaves_alone(tmp_path: Path, kept: str) -> None:
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}))
    now = runtime.clock.now()
    writes = {
        "people": create(User(id="ann", role="admin", created_at=now, created_by="cli")),
        "a service's documents": create(
            UserMapping(primary_email="a@hoge.jp", secondary_emails=["a@fuga.jp"], updated_at=now)
        ),
        "endpoints": create(Endpoint(id="e", tenant_id="acme", url="https://rms.example", created_at=now)),
    }
    await runtime.store.privileged().commit(writes[kept])
    await runtime.close()
    with pytest.raises(ConfigError, match="not a demo's"):
        await _open(tmp_path)


async def test_a_demo_that_was_cut_short_before_its_first_scene_begins_again(tmp_path: Path) -> None:
    await (await Runtime.open(load_config({"home": tmp_path}, environ={}))).close()
    runtime = await _open(tmp_path)
    endpoint = Endpoint(id="e", tenant_id="demo", url="http://127.0.0.1:1", created_at=runtime.clock.now())
    await runtime.store.privileged().commit(create(endpoint))
    await runtime.close()
    await (await _open(tmp_path)).close()
