"""The README's example runs as it is written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from typer.main import get_command

from holdfast.cli import app
from holdfast.http.routes import operator_routes
from holdfast.runtime import find_services

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def test_the_twenty_lines_run_as_saved(tmp_path: Path) -> None:
    (source,) = re.findall(
        r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "notes.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "notes.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "notes.db").exists()


def test_whoever_is_told_to_install_is_told_the_name_of_the_distribution() -> None:
    """On the index, `holdfast` is somebody else's package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["license-files"]) == ("holdfast-kit", ["LICENSE"])
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
    scaffold = (ROOT / "src/holdfast/cli/scaffold/project/pyproject.toml.txt").read_text()
    assert 'dependencies = ["holdfast-kit"]' in scaffold
    wrong = re.compile(r"pip install[^`\n]*\bholdfast(?!-kit)[\[>='\"]")
    pages = [README, *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.txt")]
    assert [str(page) for page in pages if wrong.search(page.read_text(encoding="utf-8"))] == []


def test_every_command_is_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    names = get_command(app).list_commands(None)  # type: ignore[attr-defined]
    services = {service.address for service in find_services()}
    assert [name for name in names if name not in services and not re.search(rf"`{name}[ `]", text)] == []


def test_every_service_is_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    assert [one.name for one in find_services() if f"| [{one.name}](docs/services/" not in text] == []


def test_every_area_of_the_api_is_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    paths = [path for handler in operator_routes(leave_out=set()) for path in handler.paths]
    areas = {path.split("/")[3] for path in paths if path.startswith("/api/v1/")}
    assert {area for area in areas if f"`{area}`" not in text} == set()


def test_every_link_of_the_docs_leads_somewhere() -> None:
    root = README.parent
    for page in [README, root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_test_the_docs_name_is_there() -> None:
    root = README.parent
    for page in sorted((root / "docs").rglob("*.md")):
        for name in re.findall(r"`(tests/[^`]+\.py)`", page.read_text(encoding="utf-8")):
            assert (root / name).exists(), f"{page.name}: {name}"
