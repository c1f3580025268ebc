"""A Firestore emulator under exported rules, or a loud reason why there is none."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.testing import EmulatorMissingError, firestore_emulator
from tests.export.firestore_rest import Firestore
from tests.export.typescript_compiler import find_compiler


@dataclass(frozen=True)
class GuardedFirestore:
    """A project in an emulator that enforces the rules."""

    firestore: Firestore
    project: str


GuardedFirestoreFactory = Callable[[str], GuardedFirestore | EmulatorMissingError]


@pytest.fixture(scope="module")
def guarded_firestore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedFirestoreFactory]:
    """Start an emulator with the text of a rules file; it ends with the module's tests."""
    with contextlib.ExitStack() as stack:

        def start(rules: str) -> GuardedFirestore | EmulatorMissingError:
            file: Path = tmp_path_factory.mktemp("rules") / "firestore.rules"
            file.write_text(rules)
            try:
                address = stack.enter_context(firestore_emulator(file))
            except EmulatorMissingError as missing:
                return missing
            project = f"rules-{secrets.token_hex(4)}"
            firestore = stack.enter_context(contextlib.closing(Firestore(address, project)))
            return GuardedFirestore(firestore, project)

        yield start


def require_emulator(
    request: pytest.FixtureRequest, found: GuardedFirestore | EmulatorMissingError
) -> GuardedFirestore:
    """Return the emulator; skip without one, or fail under CI."""
    if isinstance(found, EmulatorMissingError):
        request.node.user_properties.append(("engine-missing", f"firestore rules: {found}"))
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(found))
    request.node.user_properties.append(("engine", "firestore rules (emulator)"))
    return found


@pytest.fixture
def tsc(request: pytest.FixtureRequest) -> Path:
    """The compiler: the one on the PATH, else one fetched once into the cache."""
    found = find_compiler()
    if isinstance(found, str):
        request.node.user_properties.append(("engine-missing", f"typescript: {found}"))
        pytest.skip(found)
    return found
