"""What the hosted runs promise: every Python that the package names, everything, and the pictures kept."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_every_supported_python_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if ":: Python :: 3." in one]
    tried = re.search(r"python: \[(.+)\]", WORKFLOW)
    assert tried is not None
    assert re.findall(r"[\d.]+", tried[1]) == named


def test_everything_is_run_and_its_pictures_are_kept_also_of_what_failed() -> None:
    assert "run: .ci/run\n" in WORKFLOW
    kept = WORKFLOW.partition("actions/upload-artifact")[2]
    assert "if: always()" in kept
    assert "path: build/screenshots\n" in kept
    assert re.search(r"^build/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)


def test_the_lowest_and_the_newest_allowed_dependencies_are_tried() -> None:
    assert "versions: [lowest, newest]\n" in WORKFLOW
    assert "run: make test-${{ matrix.versions }}\n" in WORKFLOW
