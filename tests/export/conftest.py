"""A Firestore emulator under exported rules, or a loud reason why there is none."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.testing import EmulatorMissingError, deploy_rules
from tests.export.firestore_rest import Firestore
from tests.export.typescript_compiler import find_compiler


@dataclass(frozen=True)
class GuardedFirestore:
    """A project in an emulator that enforces the rules."""

    firestore: Firestore
    project: str


GuardedFirestoreFactory = Callable[[str], GuardedFirestore | EmulatorMissingError]


@pytest.fixture(scope="module")
def guarded_firestore(_firestore: str | EmulatorMissingError) -> Iterator[GuardedFirestoreFactory]:
    """A project of its own for each text of a rules file."""
    with contextlib.ExitStack() as stack:

        def guard(rules: str) -> GuardedFirestore | EmulatorMissingError:
            if isinstance(_firestore, EmulatorMissingError):
                return _firestore
            project = f"rules-{secrets.token_hex(4)}"
            deploy_rules(_firestore, project, rules)
            firestore = stack.enter_context(contextlib.closing(Firestore(_firestore, project)))
            return GuardedFirestore(firestore, project)

        yield guard


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
