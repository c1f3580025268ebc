"""The README's example runs as it is written."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli import app
from holdfast.http.routes import operator_routes
from holdfast.runtime import find_services

README = Path(__file__).parents[2] / "README.md"


async def test_the_twenty_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(
        r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    module = types.ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", module)
    monkeypatch.chdir(tmp_path)
    code = compile(source, str(README), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, vars(module))
    assert inspect.iscoroutine(result)
    await result
    assert (tmp_path / "notes.db").exists()


def test_every_command_is_in_the_readme() -> None:
    text = README.read_text(encoding="utf-8")
    names = get_command(app).list_commands(None)  # type: ignore[attr-defined]
    services = {service.address for service in find_services()}
    assert [name for name in names if name not in services and not re.search(rf"`{name}[ `]", text)] == []


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
