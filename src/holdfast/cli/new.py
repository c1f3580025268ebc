"""`holdfast new`: generate a service that runs: webhooks in and out, document, job, audit, page, test."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from holdfast.cli.context import AsJson, print_result
from holdfast.errors import ConfigError
from holdfast.plural import plural
from holdfast.runtime import find_services
from holdfast.server import reserved_names

SUFFIX: Final = ".txt"
_NAME: Final = r"(?=.{2,40}$)[a-z][a-z0-9]*(_[a-z0-9]+)*"
# First segments of served paths; names of console pages and commands are reserved too.
PATHS: Final = (
    "api", "assets", "console", "demo", "docs", "health", "metrics", "oauth", "sign_in", "sign_out", "work",
)  # fmt: skip


def _check_name(name: str) -> str:
    name = name.replace("-", "_")
    if not re.fullmatch(_NAME, name) or keyword.iskeyword(name) or name in ("test", "tests"):
        raise typer.BadParameter("use 2 to 40 of a-z, 0-9 and single _, a letter first, as in parcel_watch")
    if name in _reserved_names():
        raise typer.BadParameter(f"{name} is reserved by Holdfast; choose another")
    spec = find_spec(name)
    if spec is not None and spec.origin is not None:
        raise typer.BadParameter(f"a Python package {name} is installed already; choose another")
    return name


def _reserved_names() -> set[str]:
    """Names whose path, page or commands would shadow the platform's, or be shadowed by them."""
    commands = (file.stem for file in Path(__file__).parent.glob("*.py"))
    return {"holdfast", *PATHS, *commands, *reserved_names()}


def new(
    name: Annotated[str, typer.Argument(callback=_check_name, help="Its name, as in parcel_watch.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="The parent folder.")] = Path("."),
    as_json: AsJson = False,
) -> None:
    """Generate a service that runs: webhooks in and out, document, job, audit, page, test.

    \b
    Examples:
      holdfast new parcel_watch
      holdfast new parcel_watch --into ~/code
      cd parcel-watch && pip install -e '.[test]' && pytest && holdfast serve

    It is a package of its own, discovered by its entry point.
    """
    if name in {service.name for service in find_services()}:
        raise ConfigError(f"there is a service called {name} already; choose another name", "name")
    target = into.expanduser() / name.replace("_", "-")
    created = create_project(name, target)
    files = plural(len(created), "file")
    text = f"created {files} in {target}; next: cd {target} && pip install -e '.[test]' && pytest"
    print_result({"folder": str(target), "files": created}, text, as_json=as_json)


def create_project(name: str, target: Path) -> list[str]:
    """Write the project, all of it or nothing; return its files' paths."""
    if target.exists():
        raise ConfigError(f"{target} exists already; nothing was changed", "into")
    values = _template_values(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".holdfast-new-") as folder:
            project = Path(folder) / target.name
            for path, text in _render(values):
                file = project / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            shutil.move(project, target)
    except OSError as fault:
        raise ConfigError(f"can't write {target}: {fault.strerror or fault}", "into") from None
    return sorted(str(path) for path, _ in _render(values))


def _template_values(name: str) -> dict[str, str]:
    parts = name.split("_")
    return {
        "name": name, "package": name, "address": name.replace("_", "-"), "upper": name.upper(),
        "title": " ".join(parts).capitalize(), "kind": "".join(part.capitalize() for part in parts),
    }  # fmt: skip


def _render(values: dict[str, str]) -> Iterator[tuple[Path, str]]:
    scaffold = files("holdfast.cli") / "scaffold"
    package = Path("src") / values["package"]
    yield Path("tests") / f"test_{values['name']}.py", _fill(scaffold / f"test.py{SUFFIX}", values)
    for target, folder in ((Path(), "project"), (package, "package"), (package / "pages", "package/pages")):
        for file in sorted((scaffold / folder).iterdir(), key=lambda one: one.name):
            if file.name.endswith(SUFFIX):
                yield target / file.name.removesuffix(SUFFIX), _fill(file, values)


def _fill(file: Traversable, values: dict[str, str]) -> str:
    return Template(file.read_text(encoding="utf-8")).substitute(values)
