"""Google's Firestore emulator for tests: a running one, or a new one."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.testing.process import ServerProcess, free_port

VARIABLE = "HOLDFAST_TEST_FIRESTORE"
_JAR = Path("platform/cloud-firestore-emulator/cloud-firestore-emulator.jar")
# An emulator lives for minutes: thorough JIT compilation costs twice what it saves.
_JVM = ("-Duser.language=en", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_MAIN = "com.google.cloud.datastore.emulator.firestore.CloudFirestore"


class EmulatorMissingError(Exception):
    """No Firestore emulator was found; the message says how to get one."""


@contextlib.contextmanager
def firestore_emulator() -> Iterator[str]:
    """The `host:port` of an emulator: the one in `HOLDFAST_TEST_FIRESTORE`, or a new one.

    A new one ends with the block, or with this process however that ends.

    Example: `with firestore_emulator() as address: ...`
    """
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    java, jar = _find()
    port = free_port()
    command = [java, *_JVM, "-cp", str(jar), _MAIN, "start", "--host=127.0.0.1", f"--port={port}"]
    with tempfile.TemporaryDirectory(prefix="holdfast-firestore-") as folder:
        # The JVM needs no graceful stop, and SIGTERM takes it seconds.
        process = ServerProcess(command, log=Path(folder) / "log", death_signal=signal.SIGKILL)
        try:
            process.wait_until(lambda: _is_ready(port), timeout_s=60)
            yield f"127.0.0.1:{port}"
        finally:
            process.end(signal.SIGKILL)


def deploy_rules(address: str, project: str, rules: str) -> None:
    """Have the emulator at the address judge calls to this project by the text of a rules file.

    Other projects stay open. Rules that do not compile raise ValueError with the compiler's message.
    """
    body = {"rules": {"files": [{"name": "firestore.rules", "content": rules}]}}
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("PUT", f"/emulator/v1/projects/{project}:securityRules", json.dumps(body))
        answer = connection.getresponse()
        text = answer.read().decode()
    if answer.status != 200:
        raise ValueError(f"the emulator refused the rules: {text}")


def _find() -> tuple[str, Path]:
    java = shutil.which("java")
    if java is None:
        raise EmulatorMissingError("no Firestore emulator: it needs java on the PATH")
    for root in _sdk_roots():
        if (root / _JAR).is_file():
            return java, root / _JAR
    raise EmulatorMissingError(
        "no Firestore emulator: install the Google Cloud CLI with its component cloud-firestore-emulator, "
        f"or set {VARIABLE}=host:port to one that runs"
    )


def _sdk_roots() -> Iterator[Path]:
    """The SDK root by the CLI's own path (quick), then as the CLI reports it (a second)."""
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        return
    yield Path(gcloud).resolve().parent.parent
    asked = subprocess.run(
        [gcloud, "info", "--format=value(installation.sdk_root)"], capture_output=True, text=True, timeout=60
    )
    if asked.returncode == 0 and asked.stdout.strip():
        yield Path(asked.stdout.strip())


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
